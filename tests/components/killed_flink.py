"""The job of a table of Flink, whose process ends by kill -9 once the table has rows of it.

Arguments: the folder of the package, the package.
"""

import importlib
import os
import signal
import sys
import time

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.yaml_tables import DeclaredTables
from ratify_lakehouse.engines.flink.flink_engine import Flink
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.kafka.kafka_client import Kafka


def main(folder: str, package: str) -> None:
    """Run the job until then."""
    sys.path.insert(0, folder)
    (table,) = DeclaredTables(importlib.import_module(package)).flink_tables
    catalog = UnityCatalog()
    spark = Spark(catalog=catalog)
    spark.ensure_table(table.declaration)
    with table.started(spark, Kafka(), Flink(catalog=catalog), refresh=False) as job:
        while not spark.catalog.version(spark.full_name(table.declaration)):
            job.job.numbers()
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])

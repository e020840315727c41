"""A pass over a table that ends by kill -9 at one of its steps, as a process of its own.

Arguments: the schema, the table, the query, the key, and the step: `<module>:<class>.<function>:<before or after>`.
"""

import importlib
import os
import signal
import sys
from typing import Any

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components import table_asset
from ratify_lakehouse.components.strategies.table_passes import materialize_changes
from ratify_lakehouse.engines.spark.spark_engine import Spark
from tests.components.incremental_tables import declared_query


def main(schema: str, name: str, text: str, key: str, step: str) -> None:
    """Run the pass up to the step."""
    module, function, when = step.split(":")
    owner, _, called = function.partition(".")
    kind = getattr(importlib.import_module(module), owner)
    original = getattr(kind, called)

    def dying(*arguments: Any, **more: Any) -> None:
        if when == "after":
            original(*arguments, **more)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(kind, called, dying)
    # Outside of a Dagster run there is no instance that knows the lineage which a materialization draws.
    table_asset._drawn_lineage = lambda *_: None
    for _ in materialize_changes(Spark(catalog=UnityCatalog()), declared_query(schema, name, text, [key])):
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A classic Spark session, as an OAuth client. It lives in the process that asks for it, which has one kind only: so in a
process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.embedded.java_runtime import jvm_tuning
from ratify_lakehouse.embedded.runtime_setup import prepare
from ratify_lakehouse.embedded.stack_state import StackConfig
from tests.conftest import say
from tests.embedded.catalog.harness import WRITE, ClientPrincipal, client_of
from tests.engines.lakehouse import Lakehouse, pairs

PROGRAM = """
import sys
import psutil
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.delta.commit_history import Engine
from ratify_lakehouse.engines.spark.spark_engine import Spark
from tests.engines.lakehouse import pairs

name, jars, creates = sys.argv[1:]
table = pairs(Engine.SPARK, layer="silver", keys=("id",), name=name)
conf = {"spark.jars": jars, "spark.ui.enabled": "false", "spark.databricks.delta.snapshotPartitions": "1"}
# As the embedded server has it: each task costs more than its rows.
conf |= {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}
spark = Spark(catalog=UnityCatalog(), remote="local[1]", conf=conf)
assert str(spark.ensure_table(table)) == creates
done = spark.merge_to_match(table, lambda: spark.sql("SELECT * FROM VALUES (1L, 'a'), (2L, 'b') AS t(id, v)"))
secret = spark.catalog.connection.client_secret.get_secret_value()
family = psutil.Process().children(recursive=True)
shown = [" ".join(one.cmdline()) for one in family if one.status() != psutil.STATUS_ZOMBIE]
shown.append(str(spark.rows(spark.sql("SET"))))
assert any("SparkSubmit" in one for one in shown) and "clientSecret" in shown[-1]
print(type(spark.session).__module__, done.version, done.rows, [one for one in shown if secret in one])
spark.close()
"""


@pytest.mark.stack
@pytest.mark.parametrize("creates", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_classic_session_commits_through_the_catalog(
    lake: Lakehouse, home: Path, jars_dir: Path, *, creates: bool
) -> None:
    """`creates`: the table, too, which takes a cold JVM twice as long as the commit."""
    runtime = prepare(StackConfig(home=home, jars_dir=jars_dir), say)
    modules = subprocess.run([runtime.java.executable, "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.incubator.vector" not in modules:
        pytest.skip("spark-submit asks for the module jdk.incubator.vector, which this Java does not have")
    table = pairs(Engine.SPARK, layer="silver", keys=("id",))
    if not creates:
        lake.create(table)
    jars = ",".join(map(str, runtime.class_path))
    # PySpark notes in the environment which kind of session this process has.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    with client_of(lake.stack.catalog.url, lake.stack.catalog.token_file.read_text().strip()) as admin:
        principal = ClientPrincipal.create(admin, *WRITE)
        settings = {
            "UNITY_HOST": lake.stack.catalog.url,
            "UNITY_CLIENT_ID": principal.client_id,
            "UNITY_CLIENT_SECRET": principal.secret(),
        }
    # As the embedded server starts.
    options = " ".join([kept.get("JAVA_TOOL_OPTIONS", ""), *jvm_tuning(os.cpu_count() or 1)])
    environment = {**kept, **settings, "JAVA_HOME": str(runtime.java.home), "RATIFY_HOME": str(home)}
    environment["JAVA_TOOL_OPTIONS"] = options
    asked = subprocess.run(
        [sys.executable, "-c", PROGRAM, table.name, jars, str(creates)],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    # The last are those of the process list and of SET that show the secret.
    assert asked.stdout.split() == ["pyspark.sql.session", "1", "2", "[]"]
    assert settings["UNITY_CLIENT_SECRET"] not in asked.stderr
    assert (lake.catalog.table(lake.full(table)).owner == principal.name) == creates
    assert lake.stored(table) == [(1, "a"), (2, "b")]

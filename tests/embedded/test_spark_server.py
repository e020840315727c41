"""The command of the Connect server, and what a real one does with tables of the embedded catalog."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ratify_lakehouse.embedded.java_runtime import Java
from ratify_lakehouse.embedded.spark_server import CatalogEndpoint, SparkServer, catalog_conf, command, s3_conf, spark_conf
from ratify_lakehouse.embedded.stack_state import StackState
from tests.embedded.catalog.harness import permissions

TOKEN = "dapi-very-secret"
NO_MAPPING = "TBLPROPERTIES ('delta.columnMapping.mode'='none')"


def server(home: Path) -> SparkServer:
    attached = CatalogEndpoint("ratify", "http://127.0.0.1:1", TOKEN)
    return SparkServer(Java(Path("/java"), 17, "test"), (home / "a b.jar",), home, 15002, (attached,))


def test_the_token_is_in_a_private_file_and_nowhere_else(tmp_path: Path) -> None:
    launcher, argument = command(server(tmp_path))
    arguments = Path(argument.removeprefix("@"))
    assert launcher == "/java/bin/java"
    assert TOKEN in arguments.read_text()
    assert arguments.stat().st_mode & 0o777 == 0o600
    assert arguments.parent.stat().st_mode & 0o777 == 0o700
    assert TOKEN not in repr(server(tmp_path))


def test_java_reads_back_every_argument(tmp_path: Path) -> None:
    arguments = Path(command(server(tmp_path))[1].removeprefix("@")).read_text().splitlines()
    assert f'"{tmp_path}/a b.jar:' in "\n".join(arguments)
    assert all(line.startswith('"') and line.endswith('"') for line in arguments)


def test_several_catalogs_are_attached_and_the_first_is_the_default() -> None:
    conf = catalog_conf((CatalogEndpoint("one", "http://one", "1"), CatalogEndpoint("two", "http://two", "2")))
    assert conf["spark.sql.defaultCatalog"] == "one"
    assert conf["spark.sql.catalog.two"] == "io.unitycatalog.spark.UCSingleCatalog"
    assert (conf["spark.sql.catalog.two.uri"], conf["spark.sql.catalog.two.token"]) == ("http://two", "2")


def test_an_oauth_client_gets_its_tokens_itself() -> None:
    attached = CatalogEndpoint("one", "http://one", client_id="me", client_secret=TOKEN)
    conf = {key.removeprefix("spark.sql.catalog.one."): value for key, value in catalog_conf((attached,)).items()}
    assert "token" not in conf
    assert (conf["auth.type"], conf["auth.oauth.uri"]) == ("oauth", "http://one/oidc/v1/token")
    assert (conf["auth.oauth.clientId"], conf["auth.oauth.clientSecret"]) == ("me", TOKEN)
    assert TOKEN not in repr(attached)


def test_it_listens_on_this_machine_only(tmp_path: Path) -> None:
    conf = spark_conf(server(tmp_path))
    assert {conf[key] for key in conf if key.endswith(("address", "host", "bindAddress"))} == {"127.0.0.1"}


def test_the_executor_survives_a_sleep_of_the_machine(tmp_path: Path) -> None:
    assert spark_conf(server(tmp_path))["spark.storage.blockManagerHeartbeatTimeoutMs"] == "7d"


def test_s3_is_reached_with_what_the_catalog_vends_only(tmp_path: Path) -> None:
    assert not [key for key in spark_conf(server(tmp_path)) if "s3" in key]
    conf = spark_conf(replace(server(tmp_path), s3=s3_conf("http://s3", "eu-west-1")))
    assert conf["spark.hadoop.fs.s3a.aws.credentials.provider"].endswith(".TemporaryAWSCredentialsProvider")
    assert conf["spark.hadoop.fs.s3a.endpoint"] == "http://s3"
    assert conf["spark.hadoop.fs.s3a.endpoint.region"] == "eu-west-1"


@pytest.mark.stack
def test_nothing_of_s3_is_loaded_where_it_is_not_asked_for(stack: StackState, home: Path) -> None:
    arguments = (home / "secrets" / "spark.args").read_text()
    assert "delta-spark" in arguments
    assert not [part for part in ("hadoop-aws", "s3a", "sdk-core") if part in arguments]


@pytest.mark.stack
def test_engines_are_not_the_admin(stack: StackState, spark: SparkSession, fresh_schema: str) -> None:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.errors import PermissionDenied

    spark.sql(f"CREATE SCHEMA {fresh_schema}")
    admin = WorkspaceClient(host=stack.catalog.url, token=stack.catalog.token_file.read_text().strip(), auth_type="pat")
    assert admin.schemas.get(f"ratify.{fresh_schema}").owner == "ratify-spark"
    assert stack.catalog.engine_token_file is not None
    token = stack.catalog.engine_token_file.read_text().strip()
    duckdb = WorkspaceClient(host=stack.catalog.url, token=token, auth_type="pat")
    assert duckdb.schemas.get(f"ratify.{fresh_schema}").owner == "ratify-spark"
    for refused in (lambda: duckdb.schemas.delete(f"ratify.{fresh_schema}"), lambda: list(duckdb.service_principals.list())):
        with pytest.raises(PermissionDenied):
            refused()


@pytest.mark.stack
def test_a_catalog_by_oauth(stack: StackState, spark: SparkSession, fresh_schema: str) -> None:
    """Delta's client, with a client id and secret, and no more than was granted."""
    from databricks.sdk import WorkspaceClient

    url, name = stack.catalog.url, f"m2m_{fresh_schema}"
    admin = WorkspaceClient(host=url, token=stack.catalog.token_file.read_text().strip(), auth_type="pat")
    admin.catalogs.create(name)
    admin.schemas.create("s", name)
    client = admin.service_principals.create(display_name=name)
    granted = ["USE CATALOG", "USE SCHEMA", "EXTERNAL USE SCHEMA", "CREATE TABLE"]
    permissions(admin, "catalog", name, principal=name, add=granted)
    options = {
        "": "io.unitycatalog.spark.UCSingleCatalog",
        ".uri": url,
        ".auth.type": "oauth",
        ".auth.oauth.uri": f"{url}/oidc/v1/token",
        ".auth.oauth.clientId": str(client.application_id),
        ".auth.oauth.clientSecret": str(admin.service_principal_secrets_proxy.create(str(client.id)).secret),
    }
    for key, value in options.items():
        spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
    spark.sql(f"CREATE TABLE {name}.s.t (id INT) USING DELTA TBLPROPERTIES ('delta.columnMapping.mode'='none')")
    spark.sql(f"INSERT INTO {name}.s.t VALUES (1)")
    assert spark.table(f"{name}.s.t").count() == 1
    assert admin.tables.get(f"{name}.s.t").owner == name
    with pytest.raises(PySparkException, match="needs CREATE SCHEMA"):
        spark.sql(f"CREATE SCHEMA {name}.other")


@pytest.mark.stack
def test_schemas(spark: SparkSession, fresh_schema: str) -> None:
    spark.sql(f"CREATE SCHEMA {fresh_schema} COMMENT 'first'")
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {fresh_schema}")
    with pytest.raises(PySparkException, match="SCHEMA_ALREADY_EXISTS"):
        spark.sql(f"CREATE SCHEMA {fresh_schema}")
    spark.sql(f"ALTER SCHEMA {fresh_schema} SET DBPROPERTIES ('team'='air')")
    described = {row.info_name: row.info_value for row in spark.sql(f"DESCRIBE SCHEMA EXTENDED {fresh_schema}").collect()}
    assert (described["Comment"], described["Properties"]) == ("first", "((team,air))")
    spark.sql(f"DROP SCHEMA {fresh_schema}")
    assert fresh_schema not in {row.namespace for row in spark.sql("SHOW SCHEMAS").collect()}
    with pytest.raises(PySparkException, match="SCHEMA_NOT_FOUND"):
        spark.sql(f"SHOW TABLES IN {fresh_schema}").collect()


# In `make test`, the proof (tests/smoke/test_proof.py) has each of these statements but for ADD COLUMN, which
# tests/components/test_feed_schema_changes.py has.
@pytest.mark.long
@pytest.mark.stack
def test_the_life_of_a_managed_table(spark: SparkSession, fresh_schema: str) -> None:
    table = f"ratify.{fresh_schema}.t"
    spark.sql(f"CREATE SCHEMA {fresh_schema}")
    for _ in range(2):
        spark.sql(f"CREATE TABLE IF NOT EXISTS {table} (id INT, v STRING COMMENT 'a value') USING DELTA {NO_MAPPING}")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT 2 id, 'c' v UNION SELECT 3, 'd') s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    spark.sql(f"UPDATE {table} SET v = 'e' WHERE id = 1")
    spark.sql(f"DELETE FROM {table} WHERE id = 3")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN w BIGINT")
    spark.range(1).selectExpr("9 id", "'z' v", "1L w").write.mode("append").saveAsTable(table)
    rows = {tuple(row) for row in spark.table(table).collect()}
    assert rows == {(1, "e", None), (2, "c", None), (9, "z", 1)}
    assert spark.sql(f"SELECT count(*) n FROM {table} VERSION AS OF 1").first() == (2,)
    operations = [row.operation for row in spark.sql(f"DESCRIBE HISTORY {table}").collect()][::-1]
    assert operations == ["CREATE TABLE", "WRITE", "MERGE", "UPDATE", "DELETE", "ADD COLUMNS", "WRITE"]
    assert [row.tableName for row in spark.sql(f"SHOW TABLES IN {fresh_schema}").collect()] == ["t"]
    spark.sql(f"DROP TABLE {table}")
    with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.table(table).collect()


@pytest.mark.stack
def test_tables_from_queries_and_their_replacement(spark: SparkSession, fresh_schema: str) -> None:
    table = f"{fresh_schema}.q"
    spark.sql(f"CREATE SCHEMA {fresh_schema}")
    spark.sql(f"CREATE TABLE {table} {NO_MAPPING} AS SELECT id FROM range(4)")
    spark.sql(f"CREATE OR REPLACE TABLE {table} USING DELTA {NO_MAPPING} AS SELECT id, id * 2 twice FROM range(3)")
    assert spark.table(table).columns == ["id", "twice"]
    assert spark.table(table).count() == 3


@pytest.mark.stack
def test_external_tables(spark: SparkSession, fresh_schema: str, tmp_path: Path) -> None:
    table = f"{fresh_schema}.x"
    spark.sql(f"CREATE SCHEMA {fresh_schema}")
    spark.sql(
        f"CREATE TABLE {table} (id INT, day STRING COMMENT 'of the week', price DECIMAL(10, 2)) USING DELTA "
        f"PARTITIONED BY (day) COMMENT 'outside' LOCATION '{tmp_path}/x'"
    )
    spark.sql(f"INSERT INTO {table} VALUES (1, 'mon', 2.5)")
    assert spark.table(table).count() == 1
    spark.sql(f"OPTIMIZE {table}").collect()
    spark.sql(f"DROP TABLE {table}")
    assert (tmp_path / "x" / "_delta_log").is_dir()


@pytest.mark.stack
def test_other_formats_are_refused_with_a_reason(spark: SparkSession, fresh_schema: str) -> None:
    spark.sql(f"CREATE SCHEMA {fresh_schema}")
    with pytest.raises(PySparkException, match="Write USING DELTA"):
        spark.sql(f"CREATE TABLE {fresh_schema}.p (id INT) USING PARQUET")


@pytest.mark.stack
def test_an_unknown_function_is_named(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="Cannot resolve routine `nosuch`"):
        spark.sql("SELECT nosuch(1)").collect()

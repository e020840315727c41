"""`ratify catalog export`: its statements make the same tables, and the same grants, on a second server."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from databricks.sdk import WorkspaceClient
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ratify_lakehouse.cli.main import app
from ratify_lakehouse.embedded.stack_state import StackState
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.embedded.catalog.harness import CatalogAddress, permissions

pytestmark = pytest.mark.server

TABLES = """
CREATE CATALOG {0}
CREATE SCHEMA {0}.s COMMENT 'it''s raw'
CREATE TABLE {0}.s.plain (id BIGINT NOT NULL, v STRING COMMENT 'a ''quoted'' \\\\ value') USING DELTA
  COMMENT 'the table' TBLPROPERTIES ('delta.columnMapping.mode'='none', 'team'='air')
CREATE TABLE {0}.s.clustered (day DATE, place STRUCT<city: STRING, at: ARRAY<DOUBLE>>, n DECIMAL(12,2)) USING DELTA
  CLUSTER BY (day) TBLPROPERTIES ('delta.columnMapping.mode'='none', 'delta.appendOnly'='true')
CREATE TABLE {0}.s.parted (id INT, day DATE) USING DELTA PARTITIONED BY (day)
  TBLPROPERTIES ('delta.columnMapping.mode'='none')
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[CatalogAddress]:
    """A second catalog server, with nothing in its catalog `moved`."""
    with catalog_here(tmp_path / "other", catalog="moved") as started:
        yield started


@pytest.fixture
def exported(stack: StackState, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A catalog of the session's stack, which `ratify` finds by the environment. The test fills it."""
    name = f"from_{tmp_path.name}".replace("-", "_")
    monkeypatch.chdir(tmp_path)
    for variable, value in (("HOST", stack.catalog.url), ("TOKEN", token_of(stack)), ("CATALOG", name)):
        monkeypatch.setenv(f"UNITY_{variable}", value)
    return name


def token_of(stack: StackState) -> str:
    return stack.catalog.token_file.read_text().strip()


def attach(spark: SparkSession, name: str, url: str, token: str) -> None:
    for key, value in (("", "io.unitycatalog.spark.UCSingleCatalog"), (".uri", url), (".token", token)):
        spark.conf.set(f"spark.sql.catalog.{name}{key}", value)


def ratify(*words: str) -> str:
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.stderr
    return answer.stdout


def shape(client: WorkspaceClient, catalog: str) -> dict[str, object]:
    """What must be the same on both servers."""
    found: dict[str, object] = {}
    for table in client.tables.list(catalog, "s"):
        own = ("delta.last", "delta.rowTracking.", "io.")
        properties = {key: value for key, value in (table.properties or {}).items() if not key.startswith(own)}
        columns = [(c.name, c.type_text, c.comment, c.nullable, c.partition_index) for c in table.columns or []]
        found[table.name or ""] = (columns, table.comment, properties, table.table_type)
    return found


@pytest.mark.stack
def test_a_catalog_moves_to_another_server(
    stack: StackState, spark: SparkSession, other: CatalogAddress, exported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = WorkspaceClient(host=stack.catalog.url, token=token_of(stack), auth_type="pat")
    new = WorkspaceClient(host=other.url, token=other.token, auth_type="pat")
    old.catalogs.create(exported)
    attach(spark, exported, stack.catalog.url, token_of(stack))
    for statement in re.split(r"\n(?=CREATE)", TABLES.format(exported).strip())[1:]:
        spark.sql(statement)
    spark.sql(f"INSERT INTO {exported}.s.plain VALUES (1, 'x'), (2, NULL)")
    bob = f"bob_{exported}"
    old.service_principals.create(display_name=bob)
    for kind, name, privileges in (
        ("catalog", exported, ("USE CATALOG", "USE SCHEMA", "EXTERNAL USE SCHEMA")),
        ("schema", f"{exported}.s", ("SELECT",)),
        ("table", f"{exported}.s.plain", ("MODIFY",)),
    ):
        permissions(old, kind, name, principal=bob, add=privileges)

    file = Path("catalog.sql")
    assert "statements in catalog.sql" in ratify("catalog", "export", "--as", "moved", "--output", str(file))
    whole = file.read_text()
    ddl = ratify("catalog", "export", "--as", "moved", "--only", "tables")
    access = ratify("catalog", "export", "--as", "moved", "--only", "access", "--principal", f"{bob}=robert")
    assert whole.startswith("CREATE CATALOG IF NOT EXISTS `moved`;\n\n" + ddl)
    assert whole.endswith(access.replace("`robert`", f"`{bob}`"))
    assert token_of(stack) not in whole

    attach(spark, "moved", other.url, other.token)
    for statement in ddl.split(";\n\n")[:-1]:
        spark.sql(statement)
    spark.sql(f"INSERT INTO moved.s.plain SELECT * FROM {exported}.s.plain")
    assert spark.table("moved.s.plain").count() == 2
    assert shape(new, "moved") == shape(old, exported)
    assert new.schemas.get("moved.s").comment == "it's raw"

    monkeypatch.setenv("UNITY_HOST", other.url)
    monkeypatch.setenv("UNITY_TOKEN", other.token)
    ratify("principal", "create", "robert")
    granted = re.findall(r"^GRANT (.*);$", access.replace("`", ""), re.M)
    assert len(granted) == 3
    for words in granted:
        ratify("grant", *words.split())
    assert json.loads(ratify("grants", "moved.s.plain", "--json")) == [{"principal": "robert", "privileges": "MODIFY"}]
    assert "ALTER TABLE `moved`.`s`.`plain` SET OWNER TO `admin`;" in access


@pytest.mark.stack
def test_external_tables_and_the_metastore(stack: StackState, exported: str) -> None:
    client = WorkspaceClient(host=stack.catalog.url, token=token_of(stack), auth_type="pat")
    client.catalogs.create(exported)
    client.schemas.create("s", exported)
    who = client.service_principals.create(display_name=f"reader_{exported}").display_name
    permissions(client, "metastore", "any", principal=who, add=["READ FILES", "CREATE CATALOG"])
    client.api_client.do(
        "POST",
        "/api/2.1/unity-catalog/tables",
        body={
            "name": "landed",
            "catalog_name": exported,
            "schema_name": "s",
            "table_type": "EXTERNAL",
            "data_source_format": "CSV",
            "storage_location": f"file:///lake/{exported}/it's",
            "columns": [{"name": "id", "type_text": "int", "type_name": "INT", "type_json": '"integer"', "position": 0}],
        },
    )
    text = ratify("catalog", "export")
    assert (
        f"CREATE TABLE IF NOT EXISTS `{exported}`.`s`.`landed` (\n  `id` int\n) USING CSV\n"
        f"LOCATION 'file:///lake/{exported}/it\\'s';\n" in text
    )
    assert f"GRANT CREATE CATALOG ON METASTORE TO `{who}`;\n" in text
    assert f"-- {who} has READ FILES on the metastore: grant it on external locations\n" in text


def test_a_pair_of_names_is_written_so(exported: str) -> None:
    answer = CliRunner().invoke(app, ["catalog", "export", "--principal", "bob"])
    assert answer.exit_code == 1
    assert "--principal 'bob' is not of the form OLD=NEW" in " ".join(answer.stderr.split())

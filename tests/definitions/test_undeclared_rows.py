"""Rows of a data subject that no present declaration tells of: an erasure finds or names each place that has some.

Without Spark: tables are made by the catalog's API, and compared with a plain model of who is in which.
"""

import gzip
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.components.syncs.dead_letters import DEAD_LETTERS
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.definitions.erasure_plan import ErasurePlan
from ratify_lakehouse.definitions.subject_survey import Subject, SubjectSurvey
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.ingest.file_source import LOAD_COLUMNS
from ratify_lakehouse.landing.landing_zone import LandingZone
from ratify_lakehouse.sql.duckdb_sql import literal
from tests.components.declared_projects import Project, project
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.embedded.catalog.harness import TableClient, log_of
from tests.engines.declared_tables import create_declared, insert_rows

pytestmark = pytest.mark.server

__all__ = ["project"]

PEOPLE = ("Ann", "Bö", "Cy")
DECLARATIONS = {
    ("bronze", "orders"): """
type: ratify_lakehouse.LandedFiles
attributes:
  description: Orders
  pattern: shop/*.csv
  columns: [{name: customer, pii: true, subject: person}]
""",
    # The expectation quarantined once: its table is there yet.
    ("silver", "orders"): """
type: ratify_lakehouse.SqlTable
attributes:
  description: Orders
  keys: [order_id]
  expectations: [{name: known, expect: order_id > 0, action: drop}]
""",
    ("gold", "pairs"): "type: ratify_lakehouse.SqlTable\nattributes: {description: Pairs, keys: [k, v]}\n",
    # Of one column that its query's lineage does not tell of, the declaration says that it is not personal.
    ("gold", "free"): """
type: ratify_lakehouse.SqlTable
attributes:
  description: Pairs
  keys: [k, v]
  columns: [{name: v, pii: false}]
""",
    # What identifies a person is read by an expectation alone.
    ("gold", "shouted"): """
type: ratify_lakehouse.SqlTable
attributes:
  description: Loud
  keys: [order_id]
  intermediate_columns: [customer]
  expectations: [{name: named, expect: customer IS NOT NULL, action: drop}]
""",
    # A column of this table has another name by now, and its files have a third one.
    ("gold", "renamed"): "type: ratify_lakehouse.SqlTable\nattributes: {description: Renamed, keys: [order_id]}\n",
    # The lineage of one of its columns has no source.
    ("gold", "packed"): "type: ratify_lakehouse.SqlTable\nattributes: {description: Packed, keys: [order_id]}\n",
}
QUERIES = {
    ("silver", "orders"): "SELECT order_id, customer FROM bronze.orders",
    (
        "gold",
        "pairs",
    ): "SELECT stack(2, 'order', CAST(order_id AS STRING), 'customer', customer) AS (k, v) FROM silver.orders",
    ("gold", "free"): "SELECT stack(2, 'order', CAST(order_id AS STRING), 'who', customer) AS (k, v) FROM silver.orders",
    ("gold", "shouted"): "SELECT order_id, concat(customer, '') AS who, customer FROM silver.orders",
    ("gold", "renamed"): "SELECT order_id, customer FROM silver.orders",
    ("gold", "packed"): "SELECT order_id, to_json(struct(*)) AS whole FROM silver.orders",
}


@dataclass(frozen=True)
class Place:
    """A table: where rows of a person are known, or only found by the value.

    Attributes:
        table: Schema, but for the project's id, and name.
        columns: Of the table.
        row: Of a person, as SQL of DuckDB in which `{who}` is the name and `{json}` stands for it in JSON.
        known: Whether the erasure knows its rows.
        found_by: Its columns.
        computed_from: Schema, likewise, and name of the table that its commits record as their input; none if they do not.
    """

    table: tuple[str, str]
    columns: str
    row: str
    known: bool
    found_by: str
    computed_from: tuple[str, str] | None = None


LANDED = ", ".join(f"{column.name} {column.type}" for column in LOAD_COLUMNS)
NONE = ", NULL" * len(LOAD_COLUMNS)
PLACES = (
    Place(("bronze", "orders"), f"order_id bigint, customer string, {LANDED}", f"7, {{who}}{NONE}", True, "customer"),
    Place(("silver", "orders"), "order_id bigint, customer string", "7, {who}", True, "customer"),
    Place(
        ("silver", "orders_quarantine"),
        "row_hash string, rule string, row string, rows bigint",
        """'h', 'known', '{{"order_id": 7, "customer": {json}}}', 1""",
        True,
        "row.customer",
    ),
    Place(("gold", "pairs"), "k string, v string", "'customer', {who}", False, "v"),
    Place(("gold", "shouted"), "order_id bigint, who string", "7, {who}", False, "who"),
    Place(("gold", "renamed"), "order_id bigint, buyer string", "7, {who}", True, "client"),
    Place(("gold", "packed"), "order_id bigint, whole string", """7, '{{"customer": {json}}}'""", False, "whole"),
    # Of no declaration: in a struct, in JSON and in bytes.
    Place(("old", "nested"), "id bigint, s struct<a:string,b:array<string>>", "7, {{'a': 'x', 'b': [{who}]}}", False, "s"),
    Place(("old", "notes"), "id bigint, note string", """7, '{{"of": [{{"who": {json}}}]}}'""", False, "note"),
    Place(("old", "bytes"), "id bigint, raw binary", "7, encode({who})", False, "raw"),
    # Its commits record what it was computed from.
    Place(("old", "vips"), "customer string, id bigint", "{who}, 7", True, "customer", ("silver", "orders")),
    Place(("old", "called"), "name string, id bigint", "{who}, 7", False, "name", ("silver", "orders")),
)


@dataclass
class ScannedProject:
    """A catalog of its own with the tables of a project."""

    project: Project
    admin: httpx.Client
    survey: SubjectSurvey
    held: dict[tuple[str, str], set[str]] = field(default_factory=dict[tuple[str, str], set[str]])

    def name(self, table: tuple[str, str]) -> str:
        return f"{self.project.schema(table[0])}.{table[1]}"

    def create(
        self, table: tuple[str, str], columns: str, rows: Sequence[str] = (), computed_from: tuple[str, str] | None = None
    ) -> TableDeclaration:
        listed = [Column(*part.strip().split(" ", 1)) for part in columns.replace("a:string,b", "a:string;b").split(",")]
        listed = [replace(each, type=each.type.replace(";", ",")) for each in listed]
        made = TableDeclaration(
            self.project.schema(table[0]), table[1], tuple(listed), "of a test", Engine.SPARK, frozenset()
        )
        create_declared(self.admin, made)
        if rows:
            record = {"inputs": {f"ratify.{self.name(computed_from)}": {}}, "principal": "Mo"} if computed_from else {}
            info = {"userMetadata": f"ratify:1 {json.dumps(record)}"} if record else {}
            insert_rows(self.admin, made, f"VALUES {', '.join(f'({row})' for row in rows)}", **info)
        return made

    def rename(self, table: tuple[str, str], column: str, to: str) -> None:
        """Do what ALTER TABLE … RENAME COLUMN of Spark does, which needs column mapping first."""
        client = TableClient.of(self.admin, self.project.schema(table[0]), table[1])
        loaded, log = client.load(), log_of(client.location)
        actions = [json.loads(line) for file in sorted(log.glob("*.json")) for line in file.read_text().splitlines()]
        *_, metadata = (action["metaData"] for action in actions if "metaData" in action)
        *_, protocol = (action["protocol"] for action in actions if "protocol" in action)
        fields = json.loads(metadata["schemaString"])["fields"]
        for number, each in enumerate(fields, 1):
            mapped = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": each["name"]}
            each["metadata"] = mapped | each["metadata"]
            each["name"] = to if each["name"] == column else each["name"]
        mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(len(fields))}
        schema = {"type": "struct", "fields": fields}
        configuration = {**metadata["configuration"], **mapping}
        for kind in ("reader", "writer"):
            protocol[f"{kind}Features"] = sorted({*protocol[f"{kind}Features"], "columnMapping"})
        now = max(time.time_ns() // 1_000_000, loaded["metadata"]["last-commit-timestamp-ms"] + 1)
        info = {"inCommitTimestamp": now, "timestamp": now, "operation": "RENAME COLUMN", "operationParameters": {}}
        client.commit(
            [
                {"commitInfo": {**info, "txnId": "t"}},
                {"protocol": protocol},
                {"metaData": {**metadata, "schemaString": json.dumps(schema), "configuration": configuration}},
            ],
            {"action": "set-properties", "updates": mapping},
            {"action": "set-columns", "columns": schema},
            {
                "action": "set-protocol",
                "protocol": {
                    **{f"{kind}-features": protocol[f"{kind}Features"] for kind in ("reader", "writer")},
                    **{f"min-{kind}-version": protocol[f"min{kind.title()}Version"] for kind in ("reader", "writer")},
                },
            },
        )

    def fill(self, chance: random.Random) -> None:
        """Make all tables, with some of the people in each."""
        for place in PLACES:
            self.held[place.table] = {who for who in PEOPLE if chance.random() < 0.6}
            rows = [place.row.format(who=literal(who), json=json.dumps(who)) for who in sorted(self.held[place.table])]
            rows.append(place.row.format(who="'nobody'", json='"nobody"'))
            self.create(place.table, place.columns, rows, place.computed_from)
        self.rename(("gold", "renamed"), "buyer", "customer")
        self.rename(("gold", "renamed"), "customer", "client")

    def plan(self, who: str) -> ErasurePlan:
        return self.survey.plan(Subject("person", who))


@pytest.fixture
def scanned(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScannedProject]:
    landing = tmp_path / "landing"
    (landing / "shop").mkdir(parents=True)
    monkeypatch.setenv("LANDING_URL", str(landing))
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path / "home"))
    for table, text in DECLARATIONS.items():
        project.write(*table, text, QUERIES.get(table, ""))
    with catalog_here(tmp_path, dropped_table_seconds=600) as server, server.client() as admin:
        catalog = UnityCatalog(host=server.url, token=server.token)
        with closing(DuckDB(catalog=catalog)) as duckdb:
            yield ScannedProject(
                project, admin, SubjectSurvey(catalog, duckdb, project.tables, LandingZone(url=str(landing)))
            )


def rows_of(plan: ErasurePlan) -> dict[tuple[str, bool], tuple[int, str]]:
    """Rows and columns by table, as schema.table, and whether they are known."""
    found = [each for each in plan.tables if each.matched]
    return {(each.full_name.partition(".")[2], not each.undeclared): (each.matched, each.found_by) for each in found}


@pytest.mark.parametrize("seed", range(2))
def test_who_is_found_where(scanned: ScannedProject, seed: int) -> None:
    scanned.fill(random.Random(seed))  # noqa: S311
    for who in PEOPLE:
        plan = scanned.plan(who)
        there = [place for place in PLACES if who in scanned.held[place.table]]
        assert rows_of(plan) == {(scanned.name(place.table), place.known): (1, place.found_by) for place in there}
        assert {*plan.not_erased()} == {f"ratify.{scanned.name(place.table)}" for place in there}
        assert plan.refusals() == []
        remains = {each.place: each.until for each in plan.remaining(0) if each.what == "1 row"}
        assert remains == {
            f"ratify.{scanned.name(place.table)}": f"declare `subject` for {place.found_by}, or delete them by hand"
            for place in there
            if not place.known
        }
        for each in plan.remaining(0):
            if each.what == "1 row" and each.place.endswith((".pairs", ".called")):
                by = f"Ratify wrote it from ratify.{scanned.name(('silver', 'orders'))}, last version 1 by Mo"
                assert (by in each.why) == each.place.endswith(".called")


def test_a_column_that_is_declared_to_have_no_personal_data_is_not_searched(scanned: ScannedProject) -> None:
    scanned.create(("gold", "free"), "k string, v string", ["'who', 'Ann'", "'Bö', 'x'"])
    assert scanned.plan("Ann").not_erased() == []
    assert scanned.plan("Bö").not_erased() == [f"ratify.{scanned.name(('gold', 'free'))}"]


def test_tables_that_are_fenced_are_those_of_ours(scanned: ScannedProject) -> None:
    """Also of no declaration, as far as a subject may be in them; what only other programs wrote is left alone."""
    scanned.fill(random.Random(0))  # noqa: S311
    loaded = scanned.create(("old", "loaded"), "id bigint, note string")
    for name in ("theirs", "written"):
        TableClient.create_readable(scanned.admin, loaded.layer, name)
    written = replace(loaded, name="written")
    with scanned.survey.duckdb.session() as session:
        columns = session.columns(written)
        values = ", ".join(f"NULL::{sql_type(column.type).sql}" for column in columns)
        session.append(replace(written, columns=columns), f"SELECT {values}", ["one"])
    ours = [*(scanned.name(place.table) for place in PLACES), loaded.table_name, written.table_name]
    assert {*scanned.plan("Ann").to_fence} == {f"ratify.{name}" for name in ours}


def letter(sync: str, row: Mapping[str, Any], *read_from: str) -> str:
    inputs = json.dumps({name: {"table_id": "t", "version": 1} for name in read_from})
    values = (sync, "h", "no number", json.dumps(row), inputs)
    types = literal(json.dumps(dict.fromkeys(row, "string")))
    given = ", ".join(literal(value) for value in values[:4])
    return f"({given}, 1, {literal(inputs)}, NULL::TIMESTAMPTZ, NULL, {types}, NULL)"


def test_dead_letters_of_a_sync_that_has_another_name_now(scanned: ScannedProject) -> None:
    scanned.create(("bronze", "orders"), f"order_id bigint, customer string, {LANDED}")
    scanned.create(("silver", "orders"), "order_id bigint, customer string")
    create_declared(scanned.admin, DEAD_LETTERS)
    source = f"ratify.{scanned.name(('silver', 'orders'))}"
    rows = [
        letter("old", {"customer": "Ann"}, source),
        letter("old", {"customer": "Bö", "note": "Ann"}, source),
        letter("older", {"who": "Ann"}),
        letter("older", {"who": "Anna"}),
    ]
    insert_rows(scanned.admin, DEAD_LETTERS, f"VALUES {', '.join(rows)}")
    known, by_value = (each for each in scanned.plan("Ann").tables if each.matched)
    assert (known.matched, known.found_by, known.undeclared, known.set_aside) == (1, "row.customer", False, True)
    assert (by_value.matched, by_value.found_by, by_value.undeclared) == (3, "row", True)
    assert scanned.plan("Cy").not_erased() == []


def test_what_cannot_be_searched_is_named(scanned: ScannedProject, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned.fill(random.Random(0))  # noqa: S311
    damaged = scanned.create(("old", "damaged"), "id bigint, note string", ["7, 'x'"])
    client = TableClient.of(scanned.admin, damaged.layer, damaged.name)
    (file,) = log_of(client.location).parent.glob("*.parquet")
    file.write_bytes(b"PAR1 is not all of it PAR1")
    unlogged = scanned.create(("old", "unlogged"), "id bigint, note string", ["7, 'x'"])
    for path in log_of(TableClient.of(scanned.admin, unlogged.layer, unlogged.name).location).rglob("*1.*json"):
        path.unlink()
    gone = scanned.create(("gone", "orders"), "order_id bigint, customer string", ["7, 'Zoe'"])
    scanned.create(("gone", "others"), "order_id bigint, customer string", ["7, 'Zoey'"])
    torn = scanned.create(("gone", "torn"), "id bigint, note string", ["7, 'x'"])
    (file,) = log_of(TableClient.of(scanned.admin, torn.layer, torn.name).location).parent.glob("*.parquet")
    file.write_bytes(b"PAR1 is not all of it PAR1")
    deleted = scanned.admin.delete(f"/schemas/ratify.{gone.layer}?force=true")
    assert deleted.status_code == 200, deleted.text
    packed = scanned.survey.landing
    shop = Path(packed.url) / "shop"
    (shop / "cut.csv").write_bytes(gzip.compress(b"order_id,customer\n7,Zoe\n" * 100)[:-20])
    (shop / "text.csv").write_text("order_id,customer\n7,Cut off")
    (shop / "zip.csv").write_bytes(b"PK\x03\x04\xff\xff")
    plan = scanned.plan("Zoe")
    assert {*plan.not_erased()} == {
        f"ratify.{damaged.table_name}",
        f"ratify.{unlogged.table_name}",
        f"ratify.{gone.table_name}",
        f"ratify.{torn.table_name}",
        f"{shop}/cut.csv",
        f"{shop}/zip.csv",
    }
    remains = {each.place: each.why for each in plan.remaining(0)}
    assert "damaged" in remains[f"{shop}/cut.csv"] or "cut off" in remains[f"{shop}/cut.csv"]
    assert "has the value. Create its schema again; then `ratify purge" in remains[f"ratify.{gone.table_name}"]
    assert "not searched: DuckDB cannot read it" in remains[f"ratify.{torn.table_name}"]


def test_columns_that_the_log_knows_by_another_name(scanned: ScannedProject) -> None:
    """The value in old files and in the log of a table with column mapping is found by the names of the files."""
    scanned.fill(random.Random(1))  # noqa: S311
    (who, *_) = sorted(scanned.held["gold", "renamed"])
    (table,) = (each for each in scanned.plan(who).tables if each.full_name.endswith(".renamed"))
    assert {file.kind for file in table.files} >= {"live data file"}

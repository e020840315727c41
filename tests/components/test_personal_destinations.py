"""What a sync writes, and what a quarantine and a history have, is marked by the columns that the catalog has."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectation, Expectations
from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB
from ratify_lakehouse.components.personal_columns import MarkedTable, PersonalColumns, columns_in
from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.strategies.history_pass import HistoryQuery
from ratify_lakehouse.components.syncs.converted_rows import conversion_sql
from ratify_lakehouse.components.syncs.sync_declaration import MappedColumn, SyncDeclaration, SyncSource, SyncStrategy
from ratify_lakehouse.components.syncs.sync_destination import fitting_destination, new_destination
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.sql.row_history import CURRENT, VALID_FROM, VALID_TO, RowHistory
from ratify_lakehouse.sql.table_query import TableName, TableQuery
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.engines.declared_tables import create_declared

pytestmark = pytest.mark.server

PEOPLE = TableDeclaration(
    "bronze",
    "people",
    (Column("id", "bigint"), Column("who", "string"), Column("n", "int"), Column("since", "date")),
    "People",
    Engine.SPARK,
    frozenset({"WRITE"}),
)
QUERY = TableQuery.parsed("SELECT id, upper(who) AS name, n + 1 AS more, since FROM bronze.people", "databricks", "q")
TYPES = {"id": "bigint", "name": "string", "more": "int", "since": "date"}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnityCatalog]:
    home: Path = tmp_path_factory.mktemp("catalog")
    with catalog_here(home) as server:
        with server.client() as admin:
            create_declared(admin, PEOPLE)
        yield UnityCatalog(host=server.url, token=server.token)


def personal(*names: str) -> PersonalColumns:
    return PersonalColumns(lambda: [MarkedTable("bronze.people", personal=names)])


def sync(*columns: MappedColumn, of: PersonalColumns) -> SyncDeclaration:
    to = TableName("crm", "people")
    return SyncDeclaration("s", SyncSource(QUERY), to, SyncStrategy.APPEND, columns=columns, personal=of)


@pytest.mark.parametrize(
    ("column", "hidden"),
    [
        ((), {"name"}),
        ((MappedColumn("title", "name"),), {"title"}),
        ((MappedColumn("title", "name", pii=False),), set()),
        ((MappedColumn("number", "more", pii=True),), {"name", "number"}),
    ],
)
def test_a_sync(catalog: UnityCatalog, column: tuple[MappedColumn, ...], hidden: set[str]) -> None:
    declared = sync(*column, of=personal("who"))
    made = new_destination(declared, TYPES, catalog)
    fields = list(made.table.columns)
    there = fitting_destination(declared, TYPES, catalog, "ratify.crm.people", fields, {}, 0)
    for destination in (made, there):
        assert set(destination.table.personal) == {each.name for each in destination.columns if each.pii} == hidden
    assert new_destination(sync(*column, of=personal()), TYPES, catalog).table.personal == tuple(
        each.name for each in column if each.pii
    )


def test_the_values_of_a_sync_in_its_errors(catalog: UnityCatalog) -> None:
    declared = sync(MappedColumn("name", "name", cast="int"), MappedColumn("more", "more", cast="date"), of=personal("who"))
    text = conversion_sql(DUCKDB, new_destination(declared, TYPES, catalog).columns, (), "rows", "''")
    assert "concat('column name: ', 'a value', ' is not a valid int')" in text
    assert "concat('column more: ', left(CAST(" in text


def query_of(of: PersonalColumns, kind: type[ValidatedQuery] = ValidatedQuery, **more: RowHistory) -> ValidatedQuery:
    table = TableDeclaration("silver", "t", (), "", Engine.SPARK, frozenset(), keys=("id",), inferred=True)
    rule = Expectation("is_given", "more > 0", Action.QUARANTINE)
    rules = Expectations((rule,) if kind is ValidatedQuery else (), ("id",))
    return kind(
        declaration=table, query=QUERY, expectations=rules, intermediate=("more",), keys=("id",), personal=of, **more
    )


@pytest.mark.parametrize(
    ("names", "hidden", "in_table", "in_quarantine"),
    [
        ((), (), (), ()),
        # Helpers have what the columns have.
        (("who",), ("name", "more"), ("name",), ("row_hash", "row")),
        (("n",), ("more",), (), ("row_hash", "row")),
    ],
)
def test_a_table_and_its_quarantine(
    catalog: UnityCatalog,
    names: tuple[str, ...],
    hidden: tuple[str, ...],
    in_table: tuple[str, ...],
    in_quarantine: tuple[str, ...],
) -> None:
    table = query_of(personal(*names))
    is_personal = table.personal.of_query(table.query, columns_in(catalog))
    stored = table.marked(table.stored(TYPES, {}), is_personal)
    found = table.hidden(stored, TYPES, is_personal)
    quarantine = table.stored_quarantine(stored, {}, found)
    assert (found, stored.personal) == (hidden, in_table)
    assert quarantine
    assert quarantine.personal == in_quarantine


@pytest.mark.parametrize(
    ("names", "hidden"), [(("who",), ("name",)), (("since",), ("since", VALID_FROM, VALID_TO)), ((), ())]
)
def test_a_history(catalog: UnityCatalog, names: tuple[str, ...], hidden: tuple[str, ...]) -> None:
    table = query_of(personal(*names), HistoryQuery, history=RowHistory(("id",), "since"))
    is_personal = table.personal.of_query(table.query, columns_in(catalog))
    stored = table.marked(table.stored(TYPES, {}), is_personal)
    assert CURRENT in stored.column_names
    assert stored.personal == hidden

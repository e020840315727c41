"""What has to hold for a row of a sync beside its types: the length of a text, and the constraints of the table."""

import duckdb
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB
from ratify_lakehouse.components.syncs.converted_rows import (
    ERRORS,
    KEY_FAILED,
    ROW,
    ConvertedColumn,
    RowRules,
    conversion_sql,
)
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration, SyncSource, SyncStrategy
from ratify_lakehouse.components.syncs.sync_destination import fitting_destination
from ratify_lakehouse.declarations import Column
from ratify_lakehouse.sql.table_query import TableName


@pytest.mark.parametrize(
    ("row", "errors"),
    [
        ("1, 'abc', 2.0", []),
        ("1, NULL, 2.0", []),
        ("1, 'äöü', 2.0", []),
        ("1, 'abcd', 2.0", ["column v: abcd has over 3 characters"]),
        ("1, 'abc ', 2.0", ["column v: abc  has over 3 characters"]),
        ("1, 'abc', -2.0", ["it violates the constraint some: n > 0 OR v = 'x'"]),
        ("1, 'x', -2.0", []),
        # As Delta has it, NULL is a violation.
        ("1, 'abc', NULL", ["it violates the constraint some: n > 0 OR v = 'x'"]),
        # What a row would be is not known before all of its values fit.
        ("1, 'abc', 0.5", ["column n: 0.5 would lose digits as int"]),
    ],
)
def test_errors_of_a_row(row: str, errors: list[str]) -> None:
    columns = [
        ConvertedColumn("id", "int", "id", "int"),
        ConvertedColumn("v", "string", "v", "string", length=3),
        ConvertedColumn("n", "int", "n", "decimal(2,1)"),
    ]
    rules = RowRules(checks={"some": "n > 0 OR v = 'x'"})
    text = conversion_sql(
        DUCKDB, columns, ["id"], f"(SELECT * FROM (VALUES ({row})) AS r(id, v, n))", "'as it was'", rules=rules
    )
    ((found, as_it_was, lost),) = duckdb.sql(f"SELECT {ERRORS}, {ROW}, {KEY_FAILED} FROM ({text})").fetchall()
    assert (found, as_it_was, lost) == (errors, "as it was" if errors else None, False)


def test_of_some_rows_nothing_is_asked() -> None:
    """Such as events that delete a row."""
    rules = RowRules(checks={"some": "n > 0"}, checked_where="op <> 'd'")
    columns = [ConvertedColumn(name, type_, name, type_) for name, type_ in (("op", "string"), ("n", "int"))]
    rows = "(SELECT * FROM (VALUES ('d', NULL), ('u', NULL), ('u', 1)) AS r(op, n))"
    text = conversion_sql(DUCKDB, columns, [], rows, "''", rules=rules)
    assert duckdb.sql(f"SELECT len({ERRORS}) FROM ({text})").fetchall() == [(0,), (1,), (0,)]


def test_what_a_table_asks_of_its_rows() -> None:
    sync = SyncDeclaration("s", SyncSource(files="x.csv", format="csv"), TableName("bronze", "t"), SyncStrategy.APPEND)
    fields = [Column("id", "int"), Column("V", "varchar(5)"), Column("c", "CHAR(2)"), Column("other", "int")]
    constraints = {
        "positive": "ID > 0 AND length(v) > 1",
        "of_others": "other > id",
        "of a struct": "other.id > 0",
        "unreadable": "id >",
    }
    properties = {f"delta.constraints.{name}": text for name, text in constraints.items()}
    given, catalog = {"id": "int", "v": "string", "c": "string"}, UnityCatalog(host="http://127.0.0.1:9")
    found = fitting_destination(sync, given, catalog, "r.bronze.t", fields, properties, 1)
    assert [(column.name, column.type, column.length) for column in found.columns] == [
        *(("id", "int", 0), ("V", "string", 5), ("c", "string", 2))
    ]
    assert found.table.column_types == {"id": "int", "V": "string", "c": "string"}
    # What is about columns that the sync does not write, Delta alone can tell.
    assert list(found.checks) == ["positive"]

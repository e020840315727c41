"""Each cell of the matrix in `cases.py`, both ways: a difference that is not named there fails, and so does a limit that has
gone."""

import datetime as dt
import os
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.declarations import Column
from ratify_lakehouse.errors import UnsafeDeclaration
from tests.compatibility.matrix import Matrix, error_of, new_schema, undeclared, unmet
from tests.compatibility.matrix_cases import MAPS, NESTED, ODD, PLAIN, TYPE_NAMES, Odd
from tests.compatibility.matrix_document import document
from tests.compatibility.matrix_features import FEATURES, Feature
from tests.compatibility.matrix_outcomes import READERS, WRITERS, Cell
from tests.compatibility.matrix_values import Dialect, sql
from tests.compatibility.wide_table import Types, WideTable
from tests.engines.lakehouse import Lakehouse, pairs

pytestmark = pytest.mark.stack

DOCUMENT = Path(__file__).parents[2] / "docs" / "compatibility.md"
SAFE = "'delta.columnMapping.mode' = 'none'"
KINDS_OF_TYPES: Mapping[str, Types] = {"plain": PLAIN, "nested": NESTED, "maps": MAPS}


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Spark's client gives timestamps in the time zone of the process, in which the first and the last may not exist."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


# --- Types that every engine knows: all values of all types by each writer, a row each, and each row in a file of its own.


@pytest.fixture(scope="module")
def compat(engines: Lakehouse) -> Generator[str]:
    """A schema of the module's own."""
    with new_schema(engines, f"compat_{uuid4().hex[:8]}") as name:
        yield name


def filled(lake: Lakehouse, compat: str, name: str, types: Types) -> WideTable:
    columns = [("writer", "string"), ("id", "int"), *((f"c{n}", type_) for n, type_ in enumerate(types))]
    wide = WideTable(Matrix(lake, undeclared(compat, name, columns)), types)
    wide.fill()
    return wide


@pytest.fixture(scope="module")
def tables(engines: Lakehouse, compat: str, home: Path) -> dict[str, WideTable]:
    """Several, for Delta keeps statistics of the first 32 columns only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATIFY_HOME", str(home))
        return {name: filled(engines, compat, name, types) for name, types in KINDS_OF_TYPES.items()}


KINDS = pytest.mark.parametrize("kind", KINDS_OF_TYPES)


@KINDS
@pytest.mark.parametrize("reader", READERS)
def test_what_is_written_is_read(lake: Lakehouse, tables: dict[str, WideTable], kind: str, reader: str) -> None:
    assert tables[kind].differences(reader) == {}


@pytest.mark.long
def test_insert_takes_no_values_of_some_types(lake: Lakehouse, tables: dict[str, WideTable]) -> None:
    matrix = tables["maps"].matrix
    for type_ in MAPS:
        values = ", ".join(sql(MAPS[of][-1] if of == type_ else None, sql_type(of), "duckdb") for of in MAPS)
        assert "Failed to cast value" in error_of(lambda values=values: matrix.insert(f"SELECT 'insert', -1, {values}"))


@KINDS
def test_all_name_the_types_alike(lake: Lakehouse, tables: dict[str, WideTable], kind: str) -> None:
    """The catalog by databricks-sdk, Spark and DuckDB, each in its words."""
    wide = tables[kind]
    columns = (lake.catalog.table(wide.matrix.name).columns or [])[2:]
    shown = [(column.type_text, column.type_name and column.type_name.value) for column in columns]
    assert shown == [(type_, TYPE_NAMES[type_.partition("<")[0].partition("(")[0]]) for type_ in wide.types]
    assert [type_ for _, type_ in lake.spark.table(wide.matrix.table).dtypes][2:] == list(wide.types)
    with lake.duckdb.session() as session:
        described = session.rows(f"DESCRIBE {wide.matrix.attached}")
    # It quotes the names of fields only where it must.
    assert [column[1] for column in described][2:] == [sql_type(type_).sql.replace('"', "") for type_ in wide.types]


@pytest.mark.parametrize("type_", [*PLAIN, *NESTED, *MAPS])
def test_a_declaration_takes_them(type_: str) -> None:
    assert pairs(columns=(Column("c", type_),)).column_types == {"c": type_}


def missed(wide: WideTable, reader: Dialect, writer: str) -> dict[int, list[str]]:
    """Rows with the types by whose values they are not found, though they have them: a statistic of their file is wrong."""

    def unfound(asked: Sequence[tuple[int, tuple[str, ...]]]) -> list[tuple[int, tuple[str, ...]]]:
        parts = [
            (f"{number} AS number, id", f"writer = '{writer}' AND {wide.condition(types, row, reader)}")
            for number, (row, types) in enumerate(asked)
        ]
        found = {(each["number"], each["id"]) for each in wide.matrix.ask(reader, parts)}
        return [(row, types) for number, (row, types) in enumerate(asked) if (number, row) not in found]

    types = tuple(wide.types)
    rows = [row for row, _ in unfound([(row, types) for row in wide.rows])]
    alone = unfound([(row, (type_,)) for row in rows for type_ in types]) if rows else []
    return {row: [of for each, (of,) in alone if each == row] or ["all together"] for row in rows}


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("spark", "append"),
        ("duckdb", "append"),
        ("duckdb", "spark"),
        pytest.param("spark", "spark", marks=pytest.mark.long),
        pytest.param("spark", "insert", marks=pytest.mark.long),
        pytest.param("duckdb", "insert", marks=pytest.mark.long),
    ],
)
def test_no_row_is_skipped_that_has_the_value(
    lake: Lakehouse, tables: dict[str, WideTable], reader: Dialect, writer: str
) -> None:
    """Each row is a file, so that its bounds in the log and in Parquet are its values."""
    assert missed(tables["plain"], reader, writer) == {}


@pytest.mark.long
@pytest.mark.parametrize("reader", ["spark", "duckdb"])
@pytest.mark.parametrize("type_", PLAIN)
def test_no_row_is_skipped_by_one_column_alone(
    lake: Lakehouse, tables: dict[str, WideTable], reader: Dialect, type_: str
) -> None:
    wide = tables["plain"]
    parts = [(f"{row} AS row, writer, id", wide.condition([type_], row, reader)) for row in wide.rows]
    found = {(each["row"], each["writer"]) for each in wide.matrix.ask(reader, parts) if each["id"] == each["row"]}
    wanted = {(row, writer) for row in wide.rows for writer in WRITERS}
    zeros = {(row, "spark") for row in wide.rows if reader == "duckdb" and is_zero(wide.value(type_, row))}
    assert wanted - found == zeros


def is_zero(value: Any) -> bool:
    """The limit "Zero with a sign" of docs/compatibility.md."""
    return isinstance(value, float) and value == 0


def test_spark_misses_days_without_the_setting_that_ours_has(lake: Lakehouse, tables: dict[str, WideTable]) -> None:
    wide, row = tables["plain"], PLAIN["date"].index(dt.date(1582, 10, 10))
    conf, setting = lake.spark.session.conf, "spark.sql.datetime.java8API.enabled"
    where = f"writer = 'spark' AND {wide.condition(['date'], row, 'spark')}"
    assert [found["id"] for found in wide.matrix.spark("id", where)] == [row]
    conf.set(setting, "false")
    try:
        assert wide.matrix.spark("id", where) == []
    finally:
        conf.set(setting, "true")


# --- Types and values that are not for all.


def short_and_long(cases: Sequence[Any]) -> list[Any]:
    return [pytest.param(case, id=case.name, marks=[] if case.short else [pytest.mark.long]) for case in cases]


@pytest.mark.parametrize("odd", [pytest.param(odd, id=odd.name) for odd in ODD])
def test_a_declaration_refuses_what_is_not_for_all(odd: Odd) -> None:
    if not odd.declared:
        assert pairs(columns=(Column("c", odd.type),))
        return
    with pytest.raises(UnsafeDeclaration, match=odd.declared):
        pairs(columns=(Column("c", odd.type),))


@pytest.mark.parametrize("odd", short_and_long(ODD))
def test_types_and_values_that_are_not_for_all(lake: Lakehouse, odd: Odd) -> None:
    with new_schema(lake, f"odd_{uuid4().hex[:8]}") as name:
        matrix = Matrix(lake, undeclared(name, "t", [("writer", "string"), ("c", odd.written or odd.type)]))
        made = error_of(
            lambda: lake.run(f"CREATE TABLE {matrix.name} (writer STRING, c {odd.type}) USING DELTA TBLPROPERTIES ({SAFE})")
        )
        if odd.made:
            assert odd.made in made
            return
        assert made == ""
        failed = {
            "spark": error_of(lambda: lake.run(f"INSERT INTO {matrix.name} SELECT 'spark', {odd.spark}")),
            # What a declaration refuses no `append` comes to.
            "append": (not odd.written and odd.declared and error_of(lambda: pairs(columns=(Column("c", odd.type),))))
            or error_of(lambda: matrix.append(f"SELECT 'append', {odd.duckdb}")),
        }
        shown = {writer: (writer, odd.shown if writer == "spark" else odd.by_duckdb or odd.shown) for writer in WRITERS}
        found = measured(matrix, failed, shown, ("writer", odd.read), f"SELECT 'insert', {odd.duckdb}")
        assert unmet(odd.expected, found) == {}


def measured(
    matrix: Matrix, failed: Mapping[str, str], shown: Mapping[str, tuple[Any, str]], read: tuple[str, str], insert: str
) -> dict[Cell, str]:
    """What each reader makes of what each writer wrote, or the writer's error.

    Args:
        matrix: The table, into which all have written but INSERT, whose rows may make those of others unreadable.
        failed: Errors of the writers, empty where there was none.
        shown: The key of each writer's row, and its value as `str`.
        read: The key and the value, as the readers select them.
        insert: What INSERT is to bring.
    """
    before = {reader: read_by(matrix, reader, read) for reader in READERS}
    failed = {**failed, "insert": error_of(lambda: matrix.insert(insert))}
    after = before if failed["insert"] else {reader: read_by(matrix, reader, read) for reader in READERS}

    def cell(writer: str, reader: str) -> str:
        rows, unread = (after if writer == "insert" else before)[reader]
        key, wanted = shown[writer]
        got = [str(dict(value) if pairs_of_map(value) else value) for found, value in rows if found == key]
        return failed[writer] or unread or ("" if got == [wanted] else f"differs: {got} for {wanted}")

    return {(writer, reader): cell(writer, reader) for writer in WRITERS for reader in READERS}


def read_by(matrix: Matrix, reader: str, read: tuple[str, str]) -> tuple[list[tuple[Any, Any]], str]:
    """Keys and values that a reader finds, and its error."""
    rows = list[tuple[Any, Any]]()
    columns = f"{read[0]} AS key, {read[1]} AS value"
    error = error_of(lambda: rows.extend((row["key"], row["value"]) for row in getattr(matrix, reader)(columns)))
    return rows, error


def pairs_of_map(value: Any) -> bool:
    """Whether it is a map as Arrow has it."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], tuple)


# --- Features of tables.


@pytest.mark.parametrize("feature", short_and_long(FEATURES))
def test_features_of_tables(lake: Lakehouse, compat: str, feature: Feature) -> None:
    matrix = Matrix(lake, undeclared(compat, f"f_{uuid4().hex[:8]}", [("id", "bigint"), ("v", "string")]))
    properties = {"delta.columnMapping.mode": "none", **feature.properties}
    shown = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    ddl = f"CREATE TABLE {matrix.name} ({feature.columns}) USING DELTA {feature.clause} TBLPROPERTIES ({shown})"
    if made := error_of(lambda: lake.run(ddl)):
        assert feature.made
        assert feature.made in made
        return
    assert not feature.made

    def by_spark() -> None:
        lake.run(f"INSERT INTO {matrix.name} (id, v) VALUES (1, 'spark')")
        for statement in feature.then:
            lake.run(statement.format(t=matrix.name))

    failed = {"spark": error_of(by_spark), "append": error_of(lambda: matrix.append("SELECT 2, 'append'"))}
    rows = {"spark": (1, "spark"), "append": (2, "append"), "insert": (3, "insert")}
    assert unmet(feature.expected, measured(matrix, failed, rows, ("id", "v"), f"VALUES ({feature.insert})")) == {}
    query, answer = feature.asks
    if query:
        assert lake.run(query.format(t=matrix.name)) == list(answer)


def test_deltalake_does_not_read_tables_of_a_catalog(lake: Lakehouse, tables: dict[str, WideTable]) -> None:
    with pytest.raises(DeltaError, match="Max catalog version is required when loading a catalog-managed table"):
        DeltaTable(tables["plain"].matrix.location())


# --- The document.


def test_the_document_says_what_is_held_here() -> None:
    """RATIFY_WRITE_DOCS=1 writes it again."""
    if os.environ.get("RATIFY_WRITE_DOCS"):
        DOCUMENT.write_text(document())
    assert DOCUMENT.read_text() == document()

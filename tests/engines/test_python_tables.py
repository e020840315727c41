"""Tables in Python, `ratify_lakehouse.table`: each version as it was, in every library, and appends that are exact."""

import datetime as dt
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ratify_lakehouse as ratify
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.errors import (
    AppendFailed,
    CatalogDenied,
    ChangesNotRecorded,
    NotConfigured,
    TableMissing,
    UnsafeTable,
    VersionMissing,
)
from ratify_lakehouse.table_layout import Layout
from tests.compatibility.feature_pairs import COLUMNS, HandMadeTable
from tests.components.sparkless import Sparkless
from tests.embedded.catalog.harness import READ, CatalogAddress, ClientPrincipal
from tests.engines.opened_tables import address, delete_first_rows, folder, lake, live, made, names, new, opened, tuples
from tests.process_duckdb import cursor

__all__ = ["address", "lake", "made"]

pytestmark = pytest.mark.server

FEED = "delta.enableChangeDataFeed"
UTC = dt.UTC


def test_the_package_imports_no_engine_and_the_first_row_neither_spark_nor_pandas(lake: Sparkless) -> None:
    table = new(lake, "VALUES (1, 'a')")
    program = (
        "import sys, ratify_lakehouse as ratify\n"
        "heavy = {'dagster', 'duckdb', 'pyspark', 'pandas', 'polars', 'pyarrow', 'databricks'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "from ratify_lakehouse.catalog.unity_catalog import UnityCatalog\n"
        f"rows = ratify.table({table.table_name!r}, catalog=UnityCatalog(host={lake.catalog.host!r}, token=sys.argv[1]))\n"
        "assert rows.duckdb().fetchall() == [(1, 'a')]\n"
        "assert not {'pyspark', 'pandas', 'polars', 'pyarrow'} & set(sys.modules)"
    )
    token = lake.catalog.bearer_token()
    run = subprocess.run([sys.executable, "-c", program, token], capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr[-2000:]


def test_every_library_gets_the_same_rows(lake: Sparkless) -> None:
    table = new(lake, "VALUES (1, 'a'), (2, NULL)")
    rows, expected = opened(lake, table), [{"id": 1, "v": "a"}, {"id": 2, "v": None}]
    assert rows.arrow().to_pylist() == expected
    assert rows.to_batches(1).read_all().to_pylist() == expected
    assert rows.polars().collect().to_dicts() == expected
    assert rows.pandas().to_dict("records") == expected
    assert rows.duckdb().fetchall() == [(1, "a"), (2, None)]
    assert (rows.version, rows.full_name) == (1, table.full_name("ratify"))
    assert opened(lake, table.full_name("ratify")).arrow().to_pylist() == expected


def test_versions_and_times(lake: Sparkless) -> None:
    table = new(lake, "VALUES (1, 'a')")
    lake.insert(table, "VALUES (2, 'b')")
    stamps = [stamp_of(lake, table, version) for version in range(3)]
    for version, expected in enumerate(([], [1], [1, 2])):
        assert opened(lake, table, version=version).arrow()["id"].to_pylist() == expected
        assert opened(lake, table, timestamp=stamps[version]).arrow()["id"].to_pylist() == expected
        assert opened(lake, table, timestamp=stamps[version].isoformat()).version == version
    with pytest.raises(VersionMissing, match="has no version 3, only 0 to 2"):
        opened(lake, table, version=3).arrow()
    with pytest.raises(VersionMissing, match="before the first version"):
        opened(lake, table, timestamp=stamps[0] - dt.timedelta(days=1)).arrow()
    with pytest.raises(VersionMissing, match="after the latest version"):
        opened(lake, table, timestamp=stamps[2] + dt.timedelta(days=1)).polars()
    with pytest.raises(ValueError, match="no time zone"):
        opened(lake, table, timestamp="2026-01-01T00:00:00")
    with pytest.raises(ValueError, match="at one of them"):
        opened(lake, table, version=1, timestamp=stamps[0])
    (path,) = (path for path in folder(lake, table).glob("*.parquet") if path.name in names(lake, table, 1))
    path.unlink()
    with pytest.raises(VersionMissing, match=r"Version 1 of .* cannot be read any more: 1 file of it"):
        opened(lake, table, version=1).arrow()


def stamp_of(lake: Sparkless, table: TableDeclaration, version: int) -> dt.datetime:
    line = (folder(lake, table) / f"_delta_log/{version:020d}.json").read_text().splitlines()[0]
    return dt.datetime.fromtimestamp(json.loads(line)["commitInfo"]["inCommitTimestamp"] / 1000, UTC)


def test_a_relation_and_a_lazy_frame_stay_at_their_version(lake: Sparkless) -> None:
    table = new(lake, "VALUES (1, 'a')")
    rows = opened(lake, table)
    relation, frame = rows.duckdb(), rows.polars()
    lake.insert(table, "VALUES (2, 'b')")
    assert relation.fetchall() == [(1, "a")]
    assert frame.collect().rows() == [(1, "a")]
    assert rows.arrow().num_rows == 2
    # Two scans of one frame at once.
    assert frame.join(frame, on="id").collect().rows() == [(1, "a", "a")]


@pytest.mark.parametrize("by_version", [False, True])
def test_deleted_rows_are_left_out(lake: Sparkless, by_version: bool) -> None:
    table = new(lake, "VALUES (1, 'a'), (2, 'b'), (3, 'c')", properties={"delta.enableDeletionVectors": "true"})
    lake.insert(table, "VALUES (4, 'd')")
    assert delete_first_rows(lake, table, [live(lake, table)[0]]) == [(1, "a")]
    version = 3
    rows = opened(lake, table, version=version) if by_version else opened(lake, table)
    assert sorted(rows.arrow()["id"].to_pylist()) == [2, 3, 4]
    frame = rows.polars()
    assert frame.join(frame, on="id").collect().height == 3
    assert sorted(opened(lake, table, version=version - 1).arrow()["id"].to_pylist()) == [1, 2, 3, 4]


@pytest.mark.parametrize("by_version", [False, True])
def test_partition_columns(lake: Sparkless, by_version: bool) -> None:
    columns = (Column("id", "bigint"), Column("day", "date"), Column("v", "string"))
    table = new(lake, columns=columns, layout=Layout(partition_by=("day",)), writer=Engine.SPARK)
    lake.insert(table, "VALUES (1, DATE '2026-01-01', 'a'), (2, NULL, 'b')")
    rows = opened(lake, table, version=1) if by_version else opened(lake, table)
    assert tuples(rows.arrow()) == [(1, dt.date(2026, 1, 1), "a"), (2, None, "b")]
    assert rows.arrow().column_names == ["id", "day", "v"]
    assert rows.polars().filter(pl.col("day") == dt.date(2026, 1, 1)).select("v").collect().rows() == [("a",)]
    with pytest.raises(UnsafeTable, match="is partitioned"):
        opened(lake, table).append(pa.table({"id": [1], "day": [None], "v": ["x"]}), load_id="x")


def test_files_whose_bounds_exclude_a_condition_are_not_opened(lake: Sparkless) -> None:
    table = new(lake, "VALUES (1, 'a')")
    lake.insert(table, "VALUES (100, 'b')")
    rows = opened(lake, table)
    frame, relation = rows.polars(), rows.duckdb()
    (path,) = names(lake, table, 1)
    (folder(lake, table) / path).unlink()
    assert frame.filter(pl.col("id") > 50).collect().rows() == [(100, "b")]
    assert frame.filter((pl.col("v") == "b") & (pl.col("id") >= 100)).select("v").collect().rows() == [("b",)]
    assert relation.filter("id = 100").fetchall() == [(100, "b")]
    with pytest.raises(Exception, match=path):
        frame.collect()


def test_changes(lake: Sparkless) -> None:
    table = new(lake, "VALUES (1, 'a')", properties={FEED: "true"})
    lake.quick(f"UPDATE {table.table_name} SET v = 'b' WHERE id = 1")
    rows = opened(lake, table)
    kinds = ["id", "v", "_change_type", "_commit_version"]
    later = [(1, "a", "update_preimage", 2), (1, "b", "update_postimage", 2)]
    assert sorted(rows.changes(1).polars().select(kinds).collect().rows(), key=str) == sorted(later, key=str)
    assert rows.changes(0, 1).duckdb().select(*kinds).fetchall() == [(1, "a", "insert", 1)]
    empty = rows.changes(2).arrow()
    assert (empty.num_rows, empty.column_names[:4]) == (0, kinds)
    with pytest.raises(ChangesNotRecorded, match="latest version"):
        rows.changes(3).arrow()
    with pytest.raises(ChangesNotRecorded, match="records no changes"):
        opened(lake, new(lake, "VALUES (1, 'a')")).changes(1).arrow()


@pytest.mark.parametrize("kind", [pa.table, pl.DataFrame, pd.DataFrame, "reader", "lazy"])
def test_a_load_is_appended_once(lake: Sparkless, kind: Any) -> None:
    table = new(lake)
    given = {"V": ["a", None], "id": [1, 2]}
    if kind == "reader":
        data: Any = pa.RecordBatchReader.from_batches(pa.table(given).schema, pa.table(given).to_batches())
    else:
        data = pl.DataFrame(given).lazy() if kind == "lazy" else kind(given)
    rows = opened(lake, table)
    assert rows.append(data, load_id="one") == 1
    assert rows.append(pa.table({"id": [3], "v": ["c"]}), load_id="two") == 2
    assert rows.append(pa.table(given), load_id="one") == 1
    assert rows.version == 2
    assert tuples(rows.arrow()) == [(1, "a"), (2, None), (3, "c")]


def test_appends_beside_each_other_lose_and_double_nothing(lake: Sparkless) -> None:
    table = new(lake)

    def append(number: int) -> int:
        # Each load twice, by two writers.
        given = pa.table({"id": [number // 2], "v": ["x"]})
        return opened(lake, table).append(given, load_id=f"load-{number // 2}")

    with ThreadPoolExecutor(4) as pool:
        versions = [*pool.map(append, range(12))]
    assert all(versions[n] == versions[n + 1] for n in range(0, 12, 2))
    assert sorted(opened(lake, table).arrow()["id"].to_pylist()) == [*range(6)]


EVERY = (
    "bigint",
    "smallint",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "decimal(10,2)",
    "array<bigint>",
    "struct<a:int>",
)


def test_values_of_every_type_come_back_and_narrower_ones_are_taken(lake: Sparkless) -> None:
    table = new(lake, columns=tuple(Column(f"c{n}", type_) for n, type_ in enumerate(EVERY)))
    row = (
        *(5, -3, 1.5, "é", b"\0x", dt.date(1, 1, 1), dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
        *(Decimal("1.25"), [1, None], {"a": None}),
    )
    types = [pa.int64(), pa.int8(), pa.float32(), pa.string(), pa.binary(), pa.date32(), pa.timestamp("us", "Europe/Paris")]
    types += [pa.decimal128(5, 2), pa.list_(pa.int32()), pa.struct([("a", pa.int32())])]
    data = pa.table(
        {f"c{n}": pa.array([value, None], type_) for n, (value, type_) in enumerate(zip(row, types, strict=True))}
    )
    rows = opened(lake, table)
    assert rows.append(data, load_id="x") == 1
    assert rows.append(pl.DataFrame(data), load_id="y") == 2
    assert rows.append(pa.table({f"c{n}": pa.nulls(1) for n in range(len(EVERY))}), load_id="z") == 3
    found = [tuple(one.values()) for one in rows.arrow().to_pylist()]
    assert (found.count(row), found.count((None,) * len(row)), len(found)) == (2, 3, 5)
    assert opened(lake, table, version=3).arrow().sort_by("c0").equals(rows.arrow().sort_by("c0"))


def test_categories_are_texts_and_times_of_pandas_are_taken(lake: Sparkless) -> None:
    table = new(lake, columns=(Column("v", "string"), Column("t", "timestamp")))
    time = pd.Timestamp("2026-01-02T03:04:05.000006", tz="UTC")
    rows = opened(lake, table)
    rows.append(pd.DataFrame({"v": pd.Categorical(["a", None]), "t": [time, pd.NaT]}), load_id="x")
    assert tuples(rows.arrow()) == [("a", time.to_pydatetime()), (None, None)]
    with pytest.raises(AppendFailed, match="column t: has times finer than a microsecond"):
        rows.append(pd.DataFrame({"v": ["a"], "t": [time + pd.Timedelta(1, "ns")]}), load_id="y")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id": ["1"], "v": ["a"]}, "column id: bigint is expected, and string given"),
        ({"id": [1.0], "v": ["a"]}, "column id: bigint is expected, and double given"),
        ({"id": [1], "v": [2]}, "column v: string is expected, and bigint given"),
        ({"id": [1]}, "column v: string is expected, and no such column given"),
        ({"id": [1], "v": ["a"], "w": [1]}, "has no column w, which is given: it has id, v"),
        ({"id": [1], "v": [dt.datetime(2026, 1, 1)]}, "column v: string is expected, and a timestamp without a time zone"),  # noqa: DTZ001
        ({"id": [1], "v": [dt.time(1)]}, "column v: string is expected, and TIME given"),
    ],
)
def test_rows_that_do_not_fit_are_refused(lake: Sparkless, given: dict[str, list[Any]], message: str) -> None:
    table = new(lake)
    with pytest.raises(AppendFailed, match=message):
        opened(lake, table).append(pa.table(given), load_id="x")
    assert opened(lake, table).version == 0


def test_what_is_no_rows_or_has_no_load_id_is_refused(lake: Sparkless) -> None:
    rows = opened(lake, new(lake))
    with pytest.raises(TypeError, match="list has no rows"):
        rows.append([1], load_id="x")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="needs a load id"):
        rows.append(pa.table({"id": [1], "v": ["a"]}), load_id="")
    with pytest.raises(AppendFailed, match="Conversion failed for column v") as caught:
        rows.append(pd.DataFrame({"id": [1, 2], "v": ["secret", 1]}), load_id="x")
    assert "secret" not in str(caught.value)
    required = opened(lake, new(lake, columns=(Column("id", "bigint", nullable=False),)))
    with pytest.raises(AppendFailed, match="column id: must not be NULL"):
        required.append(pa.table({"id": pa.nulls(1)}), load_id="x")


def test_tables_and_packages_that_are_missing(lake: Sparkless, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = opened(lake, "bronze.no_such_table")
    reads = [missing.arrow, missing.polars, lambda: missing.version, lambda: missing.changes(0).arrow()]
    appends = lambda: missing.append(pa.table({"id": [1]}), load_id="x")  # noqa: E731
    for call in [*reads, appends, opened(lake, "bronze.no_such_table", version=0).pandas]:
        with pytest.raises(TableMissing, match="no_such_table"):
            call()
    for name in ("t", "a.b.c.d", "bronze.", ""):
        with pytest.raises(TableMissing, match=r"write schema\.table"):
            opened(lake, name)
    monkeypatch.setattr("ratify_lakehouse.engines.duckdb.given_rows.find_spec", lambda _: None)
    with pytest.raises(NotConfigured, match=r"polars is not installed: install it, or ratify-lakehouse\[dataframes\]"):
        missing.polars()


def test_grants_are_those_of_the_principal(lake: Sparkless, address: CatalogAddress) -> None:
    table = new(lake, "VALUES (1, 'a')")
    one_row = pa.table({"id": [2], "v": ["b"]})

    def as_(*privileges: str, **at: Any) -> ratify.PythonTable:
        token = ClientPrincipal.create(lake.admin, *privileges).token()
        return ratify.table(table.table_name, catalog=UnityCatalog(host=address.url, token=token), **at)

    nobody, reader = as_("USE CATALOG", "USE SCHEMA"), as_(*READ)
    for call in (nobody.arrow, nobody.polars, lambda: nobody.append(one_row, load_id="x"), as_(version=1).arrow):
        with pytest.raises((CatalogDenied, TableMissing)):
            call()
    assert reader.arrow().num_rows == 1
    assert as_(*READ, version=1).arrow().num_rows == 1
    with pytest.raises(CatalogDenied, match="MODIFY"):
        reader.append(one_row, load_id="x")
    assert opened(lake, table).version == 1


def test_a_table_is_made_equal_to_rows(lake: Sparkless) -> None:
    table = new(lake, "VALUES (1, 'a'), (2, 'b')", properties={"delta.enableRowTracking": "false"})
    rows = opened(lake, table)
    assert rows.overwrite(pl.DataFrame({"id": [2], "v": ["b"]})) == 2
    assert rows.overwrite(pl.DataFrame({"id": [2], "v": ["b"]})) == 2
    assert rows.arrow().to_pylist() == [{"id": 2, "v": "b"}]


@pytest.mark.parametrize("features", [("column mapping by name",), ("column mapping by id", "deletion vectors")])
def test_column_mapping_is_read_right_or_refused(lake: Sparkless, features: tuple[str, ...]) -> None:
    table = hand_made(lake, features)
    columns = ", ".join(f"CAST({name} AS VARCHAR)" for name in COLUMNS)
    assert sorted(opened(lake, f"bronze.{table.name}").duckdb().select(columns).fetchall(), key=str) == sorted(
        table.rows, key=str
    )
    with pytest.raises(UnsafeTable, match="has column mapping"):
        opened(lake, f"bronze.{table.name}", version=0).arrow()
    with pytest.raises(UnsafeTable, match="has column mapping"):
        opened(lake, f"bronze.{table.name}").append(pa.table({"id": [1]}), load_id="x")


@pytest.mark.parametrize(
    "features", [("partitions", "deletion vectors"), ("row tracking", "an older file without a column")]
)
def test_features_together_are_read_right_at_a_version(lake: Sparkless, features: tuple[str, ...]) -> None:
    table = hand_made(lake, features)
    columns = ", ".join(f"CAST({name} AS VARCHAR)" for name in COLUMNS)
    found = opened(lake, f"bronze.{table.name}", version=0).duckdb().select(columns).fetchall()
    assert sorted(found, key=str) == sorted(table.rows, key=str)


def test_what_a_version_asks_of_readers_and_is_not_known_is_refused(lake: Sparkless) -> None:
    table = hand_made(lake, ("type widening",))
    with pytest.raises(UnsafeTable, match="version 0, asks its readers for typeWidening: read it with Spark"):
        opened(lake, f"bronze.{table.name}", version=0).arrow()


def hand_made(lake: Sparkless, features: tuple[str, ...]) -> HandMadeTable:
    lake.admin.post("/schemas", json={"name": "bronze", "catalog_name": "ratify"})
    with cursor() as con:
        return HandMadeTable.create(lake.admin, con, "bronze", features)

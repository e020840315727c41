"""The examples of docs/python.md run, in order, and return what they say; so does the IO manager."""

import ast
import datetime as dt
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ratify_lakehouse as ratify
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Column
from ratify_lakehouse.errors import InvalidDeclaration
from tests.components.sparkless import Sparkless, sparkless_on
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.engines.declared_tables import create_declared
from tests.engines.lakehouse import folder_of, pairs

pytestmark = pytest.mark.server

PAGE = Path(__file__).parents[2] / "docs/python.md"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sparkless]:
    with catalog_here(tmp_path / "catalog") as address, sparkless_on(address) as lake:
        monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
        monkeypatch.setenv("UNITY_HOST", address.url)
        monkeypatch.setenv("UNITY_TOKEN", address.token)
        monkeypatch.setenv("UNITY_CATALOG", "ratify")
        yield lake


def test_the_examples_of_the_page(lake: Sparkless) -> None:
    columns = (Column("id", "bigint"), Column("price", "double"))
    table = pairs(layer="silver", name="orders", columns=columns, properties={"delta.enableChangeDataFeed": "true"})
    create_declared(lake.admin, table)
    lake.insert(table, "VALUES (1, 50.0), (2, 150.0)")
    lake.insert(table, "VALUES (3, 300.0)")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    line = (folder_of(lake.catalog, "ratify.silver.orders") / f"_delta_log/{1:020d}.json").read_text().splitlines()[0]
    committed_at = dt.datetime.fromtimestamp(json.loads(line)["commitInfo"]["inCommitTimestamp"] / 1000, dt.UTC)
    names: dict[str, Any] = {"committed_at": committed_at}
    returned = list[Any]()
    for statement in ast.parse("\n".join(blocks)).body:
        text = ast.unparse(statement)
        if isinstance(statement, ast.Expr):
            returned.append(eval(text, names))  # noqa: S307
        else:
            exec(text, names)  # noqa: S102
    *kinds, one, same, run = returned
    assert [type(value) for value in kinds[:2]] == [pa.Table, pa.RecordBatchReader]
    assert [type(value) for value in kinds[2:]] == [pd.DataFrame, pl.LazyFrame, duckdb.DuckDBPyRelation]
    assert (one, same) == (3, 3)
    assert sorted(names["large"]["id"]) == [2, 3]
    assert names["total"] == (450.0,)
    assert (names["first"].num_rows, names["then"].num_rows, names["changed"].height) == (2, 2, 1)
    assert run.success
    assert ratify.table("gold.customer_count").arrow().to_pylist() == [{"customers": 2}]


def test_assets_by_the_io_manager(lake: Sparkless) -> None:
    """Appends, inputs and refusals of which the page tells without an example."""

    @dg.asset(
        key_prefix="bronze", metadata={"ratify/stored_as": "append"}, partitions_def=dg.StaticPartitionsDefinition(["a"])
    )
    def appended(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"id": [1], "v": [context.partition_key]})

    @dg.asset(ins={"appended": dg.AssetIn(key_prefix="bronze")})
    def read(appended: ratify.PythonTable) -> pd.DataFrame:
        return appended.pandas()

    @dg.asset(key_prefix="bronze")
    def streamed() -> pa.RecordBatchReader:
        return pa.table({"id": [1, 2]}).to_reader()

    @dg.asset(key_prefix="bronze", partitions_def=dg.StaticPartitionsDefinition(["a"]))
    def overwritten() -> pa.Table:
        return pa.table({"id": [1]})

    @dg.asset
    def wrong(read: int) -> None: ...

    resources = {"io_manager": ratify.RatifyIOManager(catalog=UnityCatalog(), default_schema="gold")}
    for runs in (1, 2):
        assert dg.materialize([appended], resources=resources, partition_key="a").success
        assert ratify.table("bronze.appended").arrow().num_rows == runs
    # A reader can be read once, also where the table has to be created from its columns.
    assert dg.materialize([streamed], resources=resources).success
    assert ratify.table("bronze.streamed").arrow().to_pylist() == [{"id": 1}, {"id": 2}]
    for _ in range(2):
        result = dg.materialize([appended, read], selection=[read], resources=resources)
        assert ratify.table("gold.read").arrow().to_pylist() == [{"id": 1, "v": "a"}] * 2
    (event,) = result.get_asset_materialization_events()
    shown = event.materialization.metadata
    assert (shown["dagster/table_name"].value, shown["delta_version"].value) == ("ratify.gold.read", 1)
    with pytest.raises(InvalidDeclaration, match="has partitions, of which each would overwrite the whole table"):
        dg.materialize([overwritten], resources=resources, partition_key="a")
    with pytest.raises(InvalidDeclaration, match="an input cannot be a <class 'int'>"):
        dg.materialize([appended, read, wrong], selection=[wrong], resources=resources)

"""Tables on a catalog without Spark, as Python programs open them, and what other programs do to them."""

import json
import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ratify_lakehouse as ratify
from ratify_lakehouse.declarations import TableDeclaration
from tests.compatibility.feature_pairs import z85
from tests.components.sparkless import Sparkless, sparkless_on
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.embedded.catalog.harness import SPARK, CatalogAddress, TableClient
from tests.engines.declared_tables import create_declared
from tests.engines.lakehouse import folder_of, pairs


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogAddress]:
    with catalog_here(tmp_path_factory.mktemp("catalog")) as address:
        yield address


@pytest.fixture(scope="module")
def made(address: CatalogAddress) -> Iterator[Sparkless]:
    with sparkless_on(address) as made:
        yield made


@pytest.fixture
def lake(made: Sparkless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sparkless:
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    return made


def new(lake: Sparkless, rows: str = "", **more: Any) -> TableDeclaration:
    table = pairs(**more)
    create_declared(lake.admin, table)
    if rows:
        lake.insert(table, rows)
    return table


def opened(lake: Sparkless, table: TableDeclaration | str, **at: Any) -> ratify.PythonTable:
    return ratify.table(table if isinstance(table, str) else table.table_name, catalog=lake.catalog, **at)


def tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=str)


def folder(lake: Sparkless, table: TableDeclaration) -> Path:
    return folder_of(lake.catalog, table.full_name("ratify"))


def commit(lake: Sparkless, table: TableDeclaration, *actions: dict[str, Any]) -> int:
    """Commit actions as another program does."""
    client = TableClient.of(lake.admin, table.layer, table.name)
    at = client.load()["metadata"]["last-commit-timestamp-ms"] + 1
    info = {"inCommitTimestamp": at, "timestamp": at, "operation": "DELETE", "operationParameters": {}, "engineInfo": SPARK}
    return client.commit([{"commitInfo": info | {"txnId": str(random.random())}}, *actions])  # noqa: S311


def live(lake: Sparkless, table: TableDeclaration) -> list[dict[str, Any]]:
    """The `add` actions of the files that the table has."""
    log = lake.duckdb.log(table.full_name("ratify"))
    return [file.add for file in log.files(log.refresh())]


def delete_first_rows(
    lake: Sparkless, table: TableDeclaration, files: Sequence[dict[str, Any]], columns: Sequence[str] = ("id", "v")
) -> list[tuple[Any, ...]]:
    """Delete the first row of each of these files by a deletion vector, and return the rows."""
    bitmap = struct.pack("<IQIIIHHIH", 1681511377, 1, 0, 12346, 1, 0, 0, 16, 0)
    vector = {"storageType": "i", "pathOrInlineDv": z85(bitmap), "sizeInBytes": len(bitmap), "cardinality": 1}
    stored = [pq.read_table(folder(lake, table) / file["path"]).slice(0, 1).to_pylist()[0] for file in files]
    removes = [{"remove": {"path": file["path"], "deletionTimestamp": 1, "dataChange": True}} for file in files]
    commit(lake, table, *removes, *({"add": {**file, "deletionVector": vector}} for file in files))
    return [tuple(row.get(name) for name in columns) for row in stored]


def names(lake: Sparkless, table: TableDeclaration, version: int) -> set[str]:
    lines = (folder(lake, table) / f"_delta_log/{version:020d}.json").read_text().splitlines()
    return {action["add"]["path"] for action in map(json.loads, lines) if "add" in action}

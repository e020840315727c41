"""Every pair of attributes of `Sync` that is accepted works: a destination gets the rows of its source, and a correction."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.sync_component import Sync
from ratify_lakehouse.components.syncs.sync_declaration import (
    HistoryRules,
    MappedColumn,
    SyncDeclaration,
    SyncSource,
    SyncStrategy,
)
from ratify_lakehouse.components.syncs.sync_destination import new_destination
from ratify_lakehouse.errors import SyncRefused, UnsafeDeclaration
from ratify_lakehouse.sql.table_query import TableName
from tests.components.attribute_pairs import covering
from tests.components.declared_pairs import Case, declared
from tests.components.declared_syncs import duckdb_pass, names, quick_lake, spark_pass
from tests.components.test_kind_pairs import SYNC, sync_attributes, sync_refused
from tests.components.warehouse_workspace import Workspace
from tests.engines.lakehouse import Lakehouse

__all__ = ["quick_lake"]

Row = tuple[int, int, str, str, str]
_COLUMNS = {"id": "BIGINT", "seq": "BIGINT", "op": "STRING", "changed": "TIMESTAMP", "v": "STRING"}
_HISTORY = {"valid_from": "TIMESTAMP", "valid_to": "TIMESTAMP", "current": "BOOLEAN"}
_BEFORE: list[Row] = [
    (1, 10, "i", "2026-01-01 00:00:00", "a"),
    (2, 20, "u", "2026-01-02 00:00:00", "b"),
    # As an event it deletes a row.
    (3, 30, "d", "2026-01-03 00:00:00", "c"),
]
_ADDED: Row = (4, 40, "x", "2026-01-04 00:00:00", "d")
_CORRECTED: Row = (2, 20, "u", "2026-01-05 00:00:00", "B")

CASES = [case for case in covering(SYNC, sync_refused) if not sync_refused(case)]


def cases_of(engine: str) -> list[Any]:
    """Those of an engine, with their numbers."""
    return [(at, case) for at, case in enumerate(CASES) if case["engine"] == engine]


class PairedSync:
    """The sync of a case, with a source and a destination of its own."""

    def __init__(self, lake: Lakehouse, root: Path, number: int, case: Case) -> None:
        self.lake, self.case, self.strategy = lake, case, case["strategy"]
        self.source, self.destination = names()
        self.file = root / f"{self.source}.csv"
        lake.catalog.ensure_schemas(("bronze", "ops"))
        lake.quick(f"CREATE TABLE ratify.bronze.{self.source} ({_listed(_COLUMNS)}) USING DELTA")
        columns = _COLUMNS | (_HISTORY if self.strategy == "scd2" else {})
        # Where a sync may create it, that is not what differs: Spark does.
        lake.quick(f"CREATE TABLE ratify.bronze.{self.destination} ({_listed(columns)}) USING DELTA")
        folder = root / "syncs" / f"t{number}"
        folder.mkdir(parents=True)
        (folder / "q.sql").write_text(f"SELECT id, seq, op, changed, v FROM bronze.{self.source}")
        given = {name: value for name, value in sync_attributes(case).items() if value is not None}
        text = yaml.safe_dump(given)
        # No workspace is here whose legacy metastore has tables.
        for old, new in (
            ("hive_metastore.", ""),
            ("crm.a", f"bronze.{self.destination}"),
            ("gold.a", f"bronze.{self.source}"),
        ):
            text = text.replace(old, new)
        self.sync = declared(Sync, folder, yaml.safe_load(text.replace("a.csv", str(self.file)))).sync

    def offer(self, rows: Sequence[Row]) -> None:
        """Give the source these rows, the first of which it has."""
        if "file" in self.case["source"]:
            self.file.write_text("".join(f"{','.join(map(str, row))}\n" for row in (tuple(_COLUMNS), *rows)))
            return
        values = ", ".join(f"({i}, {seq}, '{op}', TIMESTAMP '{at}', '{v}')" for i, seq, op, at, v in rows)
        whole = "INTO" if self.strategy in ("append", "cdc") else "OVERWRITE"
        self.lake.quick(f"INSERT {whole} ratify.bronze.{self.source} VALUES {values}")

    def check(self, run: Callable[[SyncDeclaration], object]) -> None:
        """Run it, and again after a correction, where its strategy takes one."""
        of_file = "file" in self.case["source"]
        self.offer(_BEFORE)
        if (self.case["history"] or {}).get("updated_at") == "id":
            # Of a column that the source gives, the type is not known before.
            with pytest.raises(SyncRefused, match=r"id, the column of updated_at .*, is a bigint .* Name a column"):
                run(self.sync)
            return
        run(self.sync)
        assert self.stored() == self.expected(_BEFORE)
        if self.strategy in ("append", "cdc"):
            added = [_ADDED, (2, 41, "y", *_CORRECTED[3:])] if self.strategy == "cdc" else [_ADDED]
            self.offer([*_BEFORE, *added] if of_file else added)
            # Of a table only its new rows are inserted; other files, and a query over a new version, give all rows.
            again = _BEFORE if self.strategy == "append" and "table" not in self.case["source"] else []
            wanted = [*_BEFORE, *again, *added]
        else:
            wanted = [_BEFORE[0], _BEFORE[2], _CORRECTED, _ADDED]
            self.offer(wanted)
        for _ in range(2 if self.strategy != "append" else 1):
            run(self.sync)
            assert self.stored() == self.expected(wanted)

    def expected(self, rows: Sequence[Row]) -> Counter[tuple[int | None, str]]:
        if self.strategy == "cdc":
            rows = list({row[0]: row for row in rows if row[2] != "d"}.values())
        only_v = self.case["only_columns"] == (True, ["v"])
        return Counter((None if only_v else row[0], row[4]) for row in rows)

    def stored(self) -> Counter[tuple[int | None, str]]:
        current = " WHERE current" if self.strategy == "scd2" else ""
        found = self.lake.quick(f"SELECT id, v FROM ratify.bronze.{self.destination}{current}")
        return Counter((row["id"], row["v"]) for row in found)


def _listed(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in columns.items())


@pytest.mark.parametrize(("type_", "is_time"), [("bigint", False), ("boolean", False), ("date", True), ("timestamp", True)])
def test_what_dates_a_row_is_a_time(type_: str, *, is_time: bool) -> None:
    """Which type that is, only the source says."""
    source, history = SyncSource(files="a.csv", format="csv"), HistoryRules("at")
    sync = SyncDeclaration("s", source, TableName("crm", "a"), SyncStrategy.SCD2, ("id",), history=history)
    with (
        nullcontext()
        if is_time
        else pytest.raises(SyncRefused, match=f"at, the column of updated_at .* is a {type_} in crm")
    ):
        new_destination(sync, {"id": "bigint", "at": type_}, UnityCatalog(host="http://127.0.0.1:1", token="t"))


@pytest.mark.parametrize("type_", ["variant", "array<variant>", "string collate UTF8_LCASE", "interval", "time(6)"])
def test_a_type_that_no_table_has_is_to_be_cast(type_: str) -> None:
    """A query may have such a column, which a sync writes as another type, or not at all."""
    source, catalog = SyncSource(files="a.csv", format="csv"), UnityCatalog(host="http://127.0.0.1:1", token="t")
    sync = SyncDeclaration("s", source, TableName("crm", "a"), SyncStrategy.APPEND, ())
    with pytest.raises(UnsafeDeclaration, match=r"crm\.a, column 'v'"):
        new_destination(sync, {"id": "bigint", "v": type_}, catalog)
    cast = replace(sync, columns=(MappedColumn("v", "v", cast="string"),))
    assert [column.type for column in new_destination(cast, {"id": "bigint", "v": type_}, catalog).columns] == [
        *("string", "bigint")
    ]


@pytest.mark.server
def test_what_is_accepted_works_by_duckdb(quick_lake: Lakehouse, tmp_path: Path) -> None:
    for number, case in cases_of("duckdb"):
        one = PairedSync(quick_lake, tmp_path, number, case)
        one.check(lambda sync: duckdb_pass(quick_lake, sync).run())


@pytest.mark.stack
@pytest.mark.long
@pytest.mark.parametrize(("number", "case"), cases_of("spark"))
def test_what_is_accepted_works_by_spark(lake: Lakehouse, tmp_path: Path, number: int, case: Case) -> None:
    one = PairedSync(lake, tmp_path, number, case)
    one.check(lambda sync: spark_pass(lake, sync).run())


@pytest.mark.stack
@pytest.mark.long
@pytest.mark.parametrize(("number", "case"), cases_of("warehouse"))
def test_what_is_accepted_works_by_a_warehouse(workspace: Workspace, tmp_path: Path, number: int, case: Case) -> None:
    PairedSync(workspace.lake, tmp_path, number, case).check(workspace.run)

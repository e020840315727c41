"""How a cell of the matrix is measured: each writer writes, each reader reads, and what differs is said."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from tests.compatibility.matrix_outcomes import Cell, Outcome
from tests.compatibility.matrix_values import Dialect
from tests.engines.lakehouse import Lakehouse, append

Row = dict[str, Any]

# Of what a table of the catalog asks, deltalake knows deletion vectors; of the rest its rows do not depend.
_LEFT_OUT = {"catalogManaged", "domainMetadata", "inCommitTimestamp", "rowTracking", "v2Checkpoint", "vacuumProtocolCheck"}


class Undeclared(TableDeclaration):
    """A table as `append` sees it where no declaration would do: the writer itself must see what is wrong."""

    def __post_init__(self) -> None:
        pass


def undeclared(schema: str, name: str, columns: Sequence[tuple[str, str]]) -> TableDeclaration:
    return Undeclared(
        layer=schema,
        name=name,
        columns=tuple(Column(column, type_) for column, type_ in columns),
        comment="",
        writer=Engine.DUCKDB,
        operations=frozenset({"WRITE"}),
    )


class Matrix:
    """A table, its writers and its readers."""

    def __init__(self, lake: Lakehouse, table: TableDeclaration) -> None:
        self.lake = lake
        self.table = table
        self.name = lake.full(table)
        self.attached = f"uc.{table.layer}.{table.name}"

    def append(self, select: str, load: str = "one") -> None:
        append(self.lake.duckdb, self.table, select, load)

    def insert(self, select: str) -> None:
        """DuckDB's own INSERT, by an engine of its own, which it may leave unusable."""
        with self.lake.another_duckdb().session() as session:
            session.attach()
            session.con.execute(f"INSERT INTO {self.attached} {select}")

    def spark(self, columns: str = "*", where: str = "true") -> list[Row]:
        return self.ask("spark", [(columns, where)])

    def duckdb(self, columns: str = "*", where: str = "true") -> list[Row]:
        return self.ask("duckdb", [(columns, where)])

    def ask(self, reader: Dialect, parts: Sequence[tuple[str, str]]) -> list[Row]:
        """Ask for columns under a condition, several times in one query."""
        name = self.name if reader == "spark" else self.attached
        query = " UNION ALL ".join(f"SELECT {columns} FROM {name} WHERE {where}" for columns, where in parts)
        if reader == "spark":
            return self.lake.run(query)
        with self.lake.duckdb.session() as session:
            return session.records(query)

    def deltalake(self, columns: str = "*") -> list[Row]:
        """The rows by deltalake, which refuses the tables of a catalog: from a copy of the log that does not say so."""
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder

        with TemporaryDirectory() as folder:
            self._copy_to(Path(folder))
            query = QueryBuilder().register("t", DeltaTable(folder)).execute(f"SELECT {columns} FROM t")
            return pa.table(query.read_all()).to_pylist()

    def location(self) -> Path:
        return Path(unquote(urlsplit(self.lake.catalog.table(self.name).storage_location or "").path))

    def _copy_to(self, folder: Path) -> None:
        here = self.location()
        for path in here.rglob("*"):
            if path.is_file() and (there := path.relative_to(here)).parts[0] != "_delta_log":
                (folder / there).parent.mkdir(parents=True, exist_ok=True)
                (folder / there).symlink_to(path)
        log = self.lake.duckdb.log(self.name)
        (folder / "_delta_log").mkdir()
        for version in range(log.refresh().version + 1):
            lines = [json.dumps(_plain(action)) for action in log.actions(version) if "domainMetadata" not in action]
            (folder / "_delta_log" / f"{version:020d}.json").write_text("\n".join(lines))


def _plain(action: Row) -> Row:
    if protocol := action.get("protocol"):
        for kind in ("readerFeatures", "writerFeatures"):
            protocol[kind] = [feature for feature in protocol[kind] if feature not in _LEFT_OUT]
    return action


def error_of(work: Callable[[], object]) -> str:
    """Run it; return its error in one line, empty where there was none."""
    try:
        work()
    # Whatever an engine raises is what is measured.
    except Exception as error:  # noqa: BLE001
        return f"error: {type(error).__name__}: {error}"[:600].replace("\n", " ")
    return ""


def unmet(expected: Mapping[Cell, Outcome], measured: Mapping[Cell, str]) -> dict[Cell, str]:
    """Return the cells in which something else was measured than is expected."""
    assert measured.keys() == expected.keys()
    return {
        cell: f"expected {outcome}, found {measured[cell] or 'equal'}"
        for cell, outcome in expected.items()
        if not outcome.met_by(measured[cell])
    }


@contextmanager
def new_schema(lake: Lakehouse, name: str) -> Iterator[str]:
    """A schema that is gone afterwards: some of these would hide it, and DuckDB looks into all when it looks for a name."""
    lake.admin.post("/schemas", json={"name": name, "catalog_name": "ratify"}).raise_for_status()
    try:
        yield name
    finally:
        lake.admin.delete(f"/schemas/ratify.{name}", params={"force": "true"}).raise_for_status()

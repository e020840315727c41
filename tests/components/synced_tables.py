"""A destination of syncs in the lakehouse, beside its model, under random sources, other writers and kills."""

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest

from ratify_lakehouse.components.syncs import duckdb_tables, sync_pass
from ratify_lakehouse.components.syncs.sync_declaration import (
    DeletionGuards,
    RowErrors,
    SyncDeclaration,
    SyncEngine,
    SyncSource,
    SyncStrategy,
    whole_table,
)
from ratify_lakehouse.components.syncs.sync_engines import pass_of
from ratify_lakehouse.components.syncs.written_keys import WrittenKeys
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.engines.duckdb import row_merge
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import RatifyError
from ratify_lakehouse.sql.spark_sql import literal
from ratify_lakehouse.sql.table_query import TableName, TableQuery
from tests.components.declared_syncs import dead_letters_of
from tests.components.incremental_tables import KilledPass
from tests.components.sync_model import NO_PARTITIONS, TYPES, Misfit, ModelledPass, SourceRow, SyncModel, Text, converted
from tests.engines.lakehouse import Lakehouse

_VALUES: dict[str, Sequence[Text]] = {
    "k": ("a", "A", "ä", "a ", "", "it's", 'say "x"', "two\nlines", "名", None),
    # Several texts are one number, or one time.
    "n": ("1", "1.0", "1.50", "-0.01", "99999999.99", None),
    "t": (
        *("2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+01:00"),
        *("2026-01-01T00:00:00.000001+00:00", "2026-01-01T02:00:00+01:00", None),
    ),
    "v": ("1", "2", "-3", None),
    "w": ("x", "y", "", "__HIVE_DEFAULT_PARTITION__", None),
}
# Not of the type, or another value as it.
_MISFITS = {"n": ("1e9", "1.005", "01.5"), "t": ("yesterday",), "v": ("many", "007", "+7", "1.5")}
_STEPS: dict[SyncEngine, Sequence[tuple[Any, str]]] = {
    SyncEngine.SPARK: (
        (Spark, "merge_changes"),
        (Spark, "write_result"),
        (sync_pass, "store_dead_letters"),
        (WrittenKeys, "intend"),
        (WrittenKeys, "settle"),
    ),
    SyncEngine.DUCKDB: (
        (sync_pass, "store_dead_letters"),
        (WrittenKeys, "intend"),
        (WrittenKeys, "settle"),
        (duckdb_tables, "merge_changes"),
        (duckdb_tables, "overwrite"),
        (row_merge, "put_data_file"),
        (DeltaLog, "commit"),
        (DuckDBSession, "after_commits"),
    ),
}
_KEYS = (("k",), ("k", "n"), ("t", "k"), ("n",), ("k", "n", "t"))


@dataclass
class SyncedTable:
    """A destination.

    Attributes:
        lake: The lakehouse.
        folder: For the files of the sources.
        seed: Of what happens.
        engines: Those that run its syncs.
        done: How often what happened.
    """

    lake: Lakehouse
    folder: Path
    seed: str
    engines: Sequence[SyncEngine]
    model: SyncModel = field(default_factory=SyncModel)
    done: Counter[str] = field(default_factory=Counter[str])
    name: str = field(default_factory=lambda: f"sync_{uuid4().hex[:10]}")
    offered: dict[str, list[SourceRow]] = field(default_factory=dict[str, list[SourceRow]])

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 changes, not keys
        self.keys = self.chance.choice(_KEYS)
        columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
        self.lake.catalog.ensure_schemas(("bronze", "ops"))
        properties = {
            "delta.enableChangeDataFeed": self.chance.choice(("true", "false")),
            "delta.enableRowTracking": self.chance.choice(("true", "false")),
            "delta.columnMapping.mode": "none",
        }
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        # Spark alone writes to partitions.
        self.model.partitioned = SyncEngine.SPARK in self.engines and self.chance.random() < 0.3
        divided = "PARTITIONED BY (w) " if self.model.partitioned else ""
        with_ = f"USING DELTA {divided}TBLPROPERTIES ({listed})"
        self._create = f"CREATE TABLE ratify.bronze.{self.name} ({columns}, x INT) {with_}"
        self._write(self._create)
        self.syncs = [self._sync(number) for number in range(2)]
        texts = ", ".join(f"{name} STRING" for name in TYPES)
        for sync in self.syncs:
            if sync.source.table:
                feed = self.chance.choice(("true", "false"))
                properties = f"TBLPROPERTIES ('delta.enableChangeDataFeed' = '{feed}')"
                self.lake.quick(f"CREATE TABLE ratify.bronze.{sync.name} ({texts}) USING DELTA {properties}")

    @property
    def full_name(self) -> str:
        return f"ratify.bronze.{self.name}"

    def _write(self, statement: str) -> None:
        # Our own commits write to no partitions.
        (self.lake.run if self.model.partitioned else self.lake.quick)(statement)

    def _sync(self, number: int) -> SyncDeclaration:
        # The second one shares the keys, because no other would leave them unique.
        keyed = (SyncStrategy.MERGE, SyncStrategy.MIRROR)
        strategy = self.chance.choice((*keyed, *keyed, SyncStrategy.FULL)) if number else self.chance.choice(keyed)
        guards = DeletionGuards()
        if strategy is SyncStrategy.MIRROR:
            guards = DeletionGuards(
                empty_source=self.chance.random() < 0.5,
                max_fraction=self.chance.choice((1.0, 0.5)),
                scope=self.chance.choice(((), ("v",), ("w", "k"))),
                tracked=self.chance.random() < 0.4,
            )
        engines = (SyncEngine.SPARK,) if self.model.partitioned else self.engines
        engine, row_errors = self.chance.choice(engines), self.chance.choice(list(RowErrors))
        name = f"{self.name}_{number}"
        text = whole_table(TableName("bronze", name))
        from_table = self.chance.random() < 0.5
        return SyncDeclaration(
            name=name,
            source=SyncSource(TableQuery.parsed(text, "databricks", "the test"))
            if from_table
            else SyncSource(files=str(self.folder / f"{name}.csv"), format="csv"),
            destination=TableName("bronze", self.name),
            strategy=strategy,
            keys=self.keys if strategy.keyed else (),
            row_errors=row_errors,
            latest=self.chance.choice(((), ("v",), ("v", "w"))) if strategy.keyed else (),
            guards=guards,
            engine=engine,
        )

    def source(self, sync: SyncDeclaration) -> list[SourceRow]:
        """Random rows, seldom with two of one key or with a value that does not fit."""
        chance, rows = self.chance, list[SourceRow]()
        # Two rows of one key in the destination would be refused by every other sync.
        doubled = sync.strategy.keyed and chance.random() < 0.15
        seen = set[tuple[Text, ...]]()
        for _ in range(chance.choice((0, 1, 3, 6, 10))):
            row = {name: chance.choice(values) for name, values in _VALUES.items()}
            # Two texts may be one value.
            key = tuple(repr(_once(name, row[name])) for name in self.keys)
            if key in seen and not doubled:
                continue
            seen.add(key)
            if chance.random() < 0.06:
                name = chance.choice(list(_MISFITS))
                row[name] = chance.choice(_MISFITS[name])
            if self.model.partitioned and row["w"] in NO_PARTITIONS and chance.random() < 0.5:
                row["w"] = "x"
            rows.append(row)
        return rows

    def offer(self, sync: SyncDeclaration, rows: Sequence[SourceRow]) -> None:
        """Give a source these rows; a table gets and loses those that differ."""
        before, self.offered[sync.name] = self.offered.get(sync.name, []), list(rows)
        if not sync.source.table:
            write_csv(Path(sync.source.files), rows)
            return
        new, old = list(rows), list[SourceRow]()
        for row in before:
            if row in new:
                new.remove(row)
            else:
                old.append(row)
        # A row that is there twice is deleted twice, and one of it may have to come back.
        new += [row for row in rows if row in old and row not in new]
        for row in old:
            same = " AND ".join(f"{name} <=> {_sql(value)}" for name, value in row.items())
            self.lake.quick(f"DELETE FROM ratify.bronze.{sync.name} WHERE {same}")
        if new:
            values = ", ".join(f"({', '.join(_sql(row[name]) for name in TYPES)})" for row in new)
            self.lake.quick(f"INSERT INTO ratify.bronze.{sync.name} VALUES {values}")

    def step(self, patch: pytest.MonkeyPatch) -> None:
        """One thing that happens."""
        what: Callable[..., None] = self.chance.choices(
            (self.a_pass, self.a_killed_pass, self.the_same_again, self.another_writer, self.created_again), (6, 2, 1, 2, 1)
        )[0]
        self.done[what.__name__] += 1
        what(patch)

    def a_pass(self, patch: pytest.MonkeyPatch) -> None:
        """A pass over a new source."""
        sync = self.chance.choice(self.syncs)
        rows = self.source(sync)
        self.offer(sync, rows)
        self._compare(sync, self.model.run(sync, rows))

    def the_same_again(self, patch: pytest.MonkeyPatch) -> None:
        """A pass over a source that may have been read before."""
        sync = self.chance.choice(self.syncs)
        if sync.name in self.offered:
            self._compare(sync, self.model.run(sync, self.offered[sync.name]))

    def a_killed_pass(self, patch: pytest.MonkeyPatch) -> None:
        """A pass that ends at some step: the table is as before or as after, and the next pass completes it."""
        sync = self.chance.choice(self.syncs)
        rows = self.source(sync)
        self.offer(sync, rows)
        owner, step = self.chance.choice(_STEPS[sync.engine])
        before, version = self.stored(), self.version
        original = getattr(owner, step)
        late = self.chance.random() < 0.5

        def dying(*arguments: Any, **more: Any) -> None:
            if late:
                original(*arguments, **more)
            raise KilledPass

        with mock.patch.object(owner, step, dying):
            try:
                self._run(sync)
            except KilledPass:
                self.done[f"killed {'after' if late else 'in'} {step}"] += 1
            except RatifyError:
                pass
        between = self.stored()
        attempt = SyncModel(
            [dict(row) for row in self.model.rows],
            {name: set(keys) for name, keys in self.model.owned.items()},
            partitioned=self.model.partitioned,
        )
        attempt.run(sync, rows)
        assert between in (before, _listed(attempt.rows)), "neither before nor after"
        assert self.version - version <= 1
        # What a pass has written is its own, also if it was killed thereafter.
        self._compare(sync, self.model.run(sync, rows), done_already=self.version > version)

    def another_writer(self, patch: pytest.MonkeyPatch) -> None:
        """Rows of others are inserted, changed or deleted."""
        chance, rows = self.chance, self.model.rows
        action = chance.choice(("insert", "update", "delete"))
        if action == "insert":
            row: dict[str, Any] = {"k": f"other {chance.randint(0, 3)}", "n": Decimal("7.00"), "t": None, "v": 1, "w": "x"}
            if any(all(each[name] == row[name] for name in self.keys) for each in rows):
                return
            rows.append({**row, "x": 5})
            self._write(f"INSERT INTO {self.full_name} VALUES ({literal(row['k'])}, 7.00, NULL, 1, 'x', 5)")
        elif rows:
            row = chance.choice(rows)
            same = " AND ".join(f"{name} <=> {_sql(row[name])}" for name in self.keys)
            if action == "update":
                row["v"] = 77
                self._write(f"UPDATE {self.full_name} SET v = 77 WHERE {same}")
            else:
                rows.remove(row)
                self._write(f"DELETE FROM {self.full_name} WHERE {same}")

    def created_again(self, patch: pytest.MonkeyPatch) -> None:
        """The destination is dropped and created again, with some of its rows, which are those of others then."""
        self.model.rows = [row for row in self.model.rows if self.chance.random() < 0.7]
        self.model.owned = {}
        self.lake.quick(f"DROP TABLE {self.full_name}")
        self._write(self._create)
        if self.model.rows:
            values = ", ".join(f"({', '.join(_sql(row[name]) for name in (*TYPES, 'x'))})" for row in self.model.rows)
            self._write(f"INSERT INTO {self.full_name} VALUES {values}")

    def _run(self, sync: SyncDeclaration) -> Any:
        return pass_of(self.lake.spark, self.lake.duckdb, sync).run()

    def _compare(self, sync: SyncDeclaration, wanted: ModelledPass, *, done_already: bool = False) -> None:
        version, error, text, result = self.version, "", "", None
        try:
            result = self._run(sync)
        except RatifyError as failure:
            error, text = type(failure).__name__, str(failure)
            self.done[error] += 1
        source = self.offered[sync.name]
        assert error == wanted.error, (text, sync, source)
        stored, modelled = set(self.stored()), set(_listed(self.model.rows))
        assert not (stored ^ modelled), ("only stored", stored - modelled, "only model", modelled - stored, sync, source)
        assert self.stored() == _listed(self.model.rows), sync
        assert self.version == version + (wanted.changed and not done_already), (wanted, result, sync)
        if result and not done_already:
            counts = result.counts
            assert (counts.inserted, counts.updated, counts.deleted) == (wanted.inserted, wanted.updated, wanted.deleted)
        if not error:
            assert dead_letters_of(self.lake, sync) == self.model.failed.get(sync.name, 0)

    @property
    def version(self) -> int:
        return self.lake.catalog.version(self.full_name)

    def stored(self) -> list[str]:
        return _listed(self.lake.quick(f"SELECT * FROM {self.full_name}"))


def _once(name: str, text: Text) -> Any:
    try:
        return converted(name, text)
    except Misfit:
        return text


def _listed(rows: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(repr([_plain(row[name]) for name in (*TYPES, "x")]) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat()
    return str(value) if isinstance(value, Decimal) else value


def _sql(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP {literal(value.isoformat())}"
    return literal(value) if isinstance(value, str) else str(value)


def write_csv(path: Path, rows: Sequence[SourceRow]) -> None:
    """Write a CSV file in which NULL is nothing, and an empty text is quoted."""
    lines = [",".join(TYPES)]
    for row in rows:
        cells = ("" if row[name] is None else '"' + str(row[name]).replace('"', '""') + '"' for name in TYPES)
        lines.append(",".join(cells))
    path.write_text("".join(f"{line}\n" for line in lines))

"""A table of a model whose files of old versions are removed at a time that a test chooses."""

import os
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest

from ratify_lakehouse.delta.table_clean import UnneededFile, clean
from ratify_lakehouse.delta.table_storage import TableStorage
from ratify_lakehouse.delta.table_version import table_version
from ratify_lakehouse.engines.duckdb.live_rows import live_rows
from tests.engines.test_table_clean import TableModel, log_of

_HOUR_S = 3600


class CleanKilled(BaseException):
    """The process ends here."""


@dataclass
class AgedTable:
    """A table of a model, whose deleted files are retained for an hour, at a time that a test chooses.

    `log`: its log is likewise, and is cleaned, too.
    """

    model: TableModel
    patch: pytest.MonkeyPatch
    log: bool = False
    times: dict[int, float] = field(default_factory=dict[int, float])

    @property
    def latest(self) -> int:
        return len(self.model.versions) - 1

    def committed_at(self, version: int) -> float:
        """Seconds since 1970."""
        if version not in self.times:
            actions = self.model.lake.commit(self.model.table, version)
            (info,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
            self.times[version] = info["inCommitTimestamp"] / 1000
        return self.times[version]

    def retain_from(self, version: int) -> None:
        """Let it be an hour after a moment at which this was the latest version."""
        now = self.committed_at(version) + 0.0005 + _HOUR_S
        newest = self.model.folder / "newest"
        newest.touch()
        os.utime(newest, (now, now))
        self.patch.setattr(time, "time", lambda: now)

    def check(self, first: int, by_spark: Collection[int] | None = None) -> set[str]:
        """Each version from one on is as it was, and DuckDB reads the latest; return the data files that were read.

        `by_spark`: the versions that Spark reads, all by default; our own reader of the log reads the others.
        """
        versions = {*range(first, self.latest + 1)}
        by_spark = versions if by_spark is None else by_spark
        found: dict[int, list[tuple[int, str]]] = {version: [] for version in by_spark}
        files = set[str]()
        for row in self._read_by_spark(by_spark) if by_spark else ():
            found[row["version"]].append((row["id"], row["v"]))
            files.add(row["file"])
        for version in versions.difference(by_spark):
            found[version], named = self._read_by_log(version)
            files |= named
        for version, rows in found.items():
            assert sorted(rows) == self.model.versions[version], version
        assert self.model.lake.stored(self.model.table) == self.model.versions[-1]
        return files

    def _read_by_spark(self, versions: Iterable[int]) -> list[dict[str, Any]]:
        """The rows of versions, each with its version and file, by one query."""
        name = self.model.lake.full(self.model.table)
        columns = "id, v, _metadata.file_name AS file"
        each = (f"SELECT {version} AS version, {columns} FROM {name} VERSION AS OF {version}" for version in versions)
        return self.model.lake.run(" UNION ALL ".join(each))

    def _read_by_log(self, version: int) -> tuple[list[tuple[int, str]], set[str]]:
        log = log_of(self.model.lake, self.model.table)
        snapshot = log.refresh()
        files = [*table_version(log, version).files.values()]
        if not files:
            return [], set()
        with self.model.lake.duckdb.session() as session, live_rows(session.con, log.storage, snapshot, files) as live:
            return session.rows(f"SELECT id, v FROM ({live.select()})"), {file.path for file in files}

    def data_files(self) -> set[str]:
        return {path.name for path in self.model.folder.glob("*.parquet")}

    def cleaned(self) -> list[UnneededFile]:
        log = log_of(self.model.lake, self.model.table)
        return clean(self.model.lake.catalog, log, old_versions=True, old_log=self.log)

    def log_files(self) -> dict[str, float]:
        """When each file of a version in the log was written, by its name."""
        return {path.name: path.stat().st_mtime for path in (self.model.folder / "_delta_log").glob("[0-9]*.*")}

    def check_log(self, first: int) -> None:
        """It begins with the newest checkpoint up to a version, as far as its files are older than that."""
        since = self.committed_at(first) + 0.0005
        checkpoints = [int(name[:20]) for name in self.log_files() if ".checkpoint." in name]
        begins = max((version for version in checkpoints if version <= first), default=0)
        old = [name for name, at in self.log_files().items() if int(name[:20]) < begins and at < since]
        assert old == [], f"version {first} is read from checkpoint {begins}"

    def killed(self, after: int) -> None:
        """A clean that ends after it has removed some files."""
        removed, remove = list[str](), TableStorage.remove

        def dying(storage: TableStorage, path: str) -> None:
            if len(removed) == after:
                raise CleanKilled
            removed.append(path)
            remove(storage, path)

        with mock.patch.object(TableStorage, "remove", dying), pytest.raises(CleanKilled):
            self.cleaned()

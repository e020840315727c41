"""One table's commits, as DESCRIBE HISTORY lists them."""

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.delta.snapshot import committed_ms

_ENGINE_INFO = (
    (re.compile(r"^Apache-Spark/"), Engine.SPARK),
    (re.compile(r"^Databricks-Runtime/"), Engine.DATABRICKS),
    (re.compile(r"^DuckDB"), Engine.DUCKDB),
    (re.compile(r"^Kernel-\S+/(DeltaSink|RatifySink)"), Engine.FLINK),
)

MAINTENANCE = frozenset({"COMPUTE STATS", "OPTIMIZE", "REORG", "UPGRADE PROTOCOL", "VACUUM START", "VACUUM END"})
"""Operations that leave a table's rows, columns and properties as they are."""

SAME_ROWS = MAINTENANCE | {
    "ADD COLUMNS",
    "CREATE TABLE",
    "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES",
    "CHANGE COLUMN",
    "CLUSTER BY",
}
"""Operations that leave a table's rows as they are."""

COLUMNS_MOVED = frozenset({"DROP COLUMNS", "RENAME COLUMN", "REPLACE COLUMNS"})
"""Operations after which a table's rows have other values under the names of its columns, though no file was written."""

OURS = "ratify"
"""Beginning of the user metadata, properties and app ids of ours; part of the name of our writers in `engineInfo`."""

EVERY_COMMIT = 2**31 - 1
"""More commits than a table has: the limit of whoever reads its history as far back as needed."""

FULL_REFRESH = "ratify:full refresh"
"""Beginning of the user metadata of a commit that replaced the rows of a table that else goes on from its last commit."""

FENCE = "ratify.erased"
"""Table property with the id of the last erasure that has fenced the table (see `ratify_lakehouse.delta.erasure_fence`)."""


def engine_of(engine_info: str | None) -> Engine:
    """Return the engine behind a commit's `engineInfo`."""
    for pattern, engine in _ENGINE_INFO:
        if pattern.match(engine_info or ""):
            return engine
    return Engine.OTHER


@dataclass(frozen=True)
class Commit:
    """One ratified version of a table (a row of DESCRIBE HISTORY).

    `metrics` is Delta's operationMetrics with integer values where they are integers, `parameters` its operationParameters;
    DuckDB's own commits have neither.
    """

    version: int
    timestamp: dt.datetime
    operation: str
    engine: Engine
    engine_info: str
    metrics: Mapping[str, int] = field(default_factory=dict[str, int])
    user_metadata: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def record(self) -> dict[str, Any]:
        """The JSON object that a writer of ours put into the user metadata; empty if there is none."""
        # It follows the purpose and the mark of the commit, which have no brace.
        _, brace, text = (self.user_metadata or "").partition("{")
        try:
            found = json.loads(brace + text)
        except ValueError:
            return {}
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    @property
    def is_ours(self) -> bool:
        """Return whether a writer of ours made this commit, as it says itself."""
        return (self.user_metadata or "").startswith(OURS) or OURS in self.engine_info.lower()

    @property
    def is_fence(self) -> bool:
        """Return whether this commit is the fence of an erasure."""
        return self.operation == "SET TBLPROPERTIES" and FENCE in self.parameters.get("properties", "")

    @property
    def rows_added(self) -> int | None:
        """Rows that this commit added, or None if the engine did not report them."""
        for key in ("numOutputRows", "numTargetRowsInserted"):
            if key in self.metrics:
                return self.metrics[key]
        return None

    @property
    def only_deletes_rows(self) -> bool:
        """Whether it is known, without the log, that this commit did no more than delete rows."""
        if self.operation == "MERGE":
            return self._merged_without("Updated", "Inserted")
        return self.operation == "DELETE"

    @property
    def only_adds_rows(self) -> bool:
        """Whether it is known, without the log, that this commit removed and changed no rows."""
        if self.operation in SAME_ROWS:
            return True
        if self.operation == "MERGE":
            return self._merged_without("Updated", "Deleted")
        return self.operation in ("WRITE", "STREAMING UPDATE") and self.parameters.get("mode", "Append") == "Append"

    @property
    def may_divide(self) -> bool:
        """Whether it is not known, without the log, that the table has the same partitions after this commit as before."""
        if self.operation == "WRITE":
            return self.parameters.get("mode", "Append") != "Append"
        replaces = any(word in self.operation for word in ("REPLACE", "CLONE", "RESTORE", "unknown"))
        # Of `ratify layout`.
        return replaces or (self.operation == "OPTIMIZE" and "layout" in self.parameters)

    @property
    def merged_nothing(self) -> bool:
        """Whether it is known, without the log, that this commit is a MERGE that changed no row: it may have moved rows."""
        return self.operation == "MERGE" and self._merged_without("Inserted", "Updated", "Deleted")

    def _merged_without(self, *did: str) -> bool:
        """Whether it is known that a MERGE did these to no row."""
        return not any(self.metrics.get(f"numTargetRows{each}", 1) for each in did)


def commit_from_row(row: Mapping[str, Any]) -> Commit:
    """Convert one row of DESCRIBE HISTORY (columns as Delta names them) into a Commit."""
    reported = cast("Mapping[str, str]", row.get("operationMetrics") or {})
    metrics = {name: int(value) for name, value in reported.items() if value.isdigit()}
    return Commit(
        version=int(row["version"]),
        # PySpark gives timestamps without a zone, in the local time of this process.
        timestamp=row["timestamp"].astimezone(dt.UTC),
        operation=row["operation"],
        engine=engine_of(row.get("engineInfo")),
        engine_info=row.get("engineInfo") or "",
        metrics=metrics,
        user_metadata=row.get("userMetadata"),
        parameters=row.get("operationParameters") or {},
    )


def commit_from_actions(version: int, actions: Sequence[Mapping[str, Any]]) -> Commit | None:
    """Convert the actions of one version in a table's log into a Commit; None if they do not say who made it."""
    infos: list[dict[str, Any]] = [action["commitInfo"] for action in actions if "commitInfo" in action]
    info = infos[0] if infos else {}
    milliseconds = committed_ms(info)
    if not milliseconds:
        return None
    row = {**info, "version": version, "timestamp": dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)}
    return commit_from_row({"operation": "unknown", **row})

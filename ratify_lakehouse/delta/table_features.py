"""Features of a Delta table that DuckDB cannot read, cannot write, or of which it cannot read the feed: each alone, or two.

Each is measured both ways by the compatibility matrix: what is refused here is wrong there, and what is wrong there is
refused here.
"""

from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from ratify_lakehouse.declarations import is_append_only
from ratify_lakehouse.delta.commit_actions import Proposal
from ratify_lakehouse.delta.snapshot import Json, Snapshot
from ratify_lakehouse.errors import UnsafeTable

_SUPPORTED = frozenset(
    {
        "appendOnly",
        "catalogManaged",
        "changeDataFeed",
        "clustering",
        "deletionVectors",
        "domainMetadata",
        "inCommitTimestamp",
        "invariants",
        "rowTracking",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)


class Use(Enum):
    """Ways in which this project uses a table beside Spark."""

    QUERY = "query"
    """DuckDB reads it as a table of the attached catalog."""
    FILES = "files"
    """Its data files, and those of its feed, are read by the names of its columns."""
    APPEND = "append"
    """Files are added to it that have all of its columns."""
    MOVE = "move"
    """Its files are written again, each with the values of its partition."""


MAPPING, PARTITIONS = "column mapping", "partitions"


@dataclass(frozen=True)
class Refusal:
    """A use of tables with all of some features that would give, or leave, wrong rows.

    Attributes:
        features: The features.
        uses: The uses.
        reason: For the error: what would be wrong, and what to do. `{table}` is the table, `{mode}` its column mapping, and
            `{columns}` its partition columns.
    """

    features: frozenset[str]
    uses: frozenset[Use]
    reason: str


REFUSALS = (
    Refusal(
        frozenset({MAPPING}),
        frozenset({Use.APPEND, Use.MOVE}),
        "{table} has column mapping ({mode}): rows that DuckDB writes to it read as NULL in every engine. Run ALTER TABLE "
        "{table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none') in Spark before DuckDB's first write, or drop the "
        "table and let it be created again.",
    ),
    Refusal(
        frozenset({MAPPING}),
        frozenset({Use.FILES}),
        "{table} has column mapping ({mode}), so its files have other names for its columns: read it with Spark.",
    ),
    Refusal(
        frozenset({MAPPING, PARTITIONS}),
        frozenset({Use.QUERY}),
        "{table} has column mapping ({mode}) and is partitioned by {columns}, for which DuckDB would read NULL: read it "
        "with Spark, or copy it in Spark to a table without column mapping.",
    ),
    Refusal(
        frozenset({PARTITIONS}),
        frozenset({Use.APPEND}),
        "{table} is partitioned: write it with Spark, or cluster it instead.",
    ),
)


def refuse(full_name: str, properties: Mapping[str, str], partition_columns: Collection[str], use: Use) -> None:
    """Refuse a use of a table that its features, or two of them together, make unsafe.

    Raises:
        UnsafeTable: the message names the features, and what to do.
    """
    mode = properties.get("delta.columnMapping.mode", "none")
    features = {*([MAPPING] if mode != "none" else []), *([PARTITIONS] if partition_columns else [])}
    for refusal in REFUSALS:
        if use in refusal.uses and refusal.features <= features:
            columns = ", ".join(partition_columns)
            raise UnsafeTable(refusal.reason.format(table=full_name, mode=mode, columns=columns))


def supported(snapshot: Snapshot, plan: Callable[[Snapshot], Proposal], partitioned: bool = False) -> Proposal:
    """Return the plan for a snapshot, unless its table has an unsupported feature or forbids the change.

    `partitioned`: the plan gives its files the values of their partition.

    Raises:
        UnsafeTable: the message names the feature, and what to do; or the plan only moves rows, and would lose or add some.
        Whatever `plan` raises.
    """
    refuse_unsupported_features(snapshot, partitioned)
    proposal = plan(snapshot)
    append_only = is_append_only(snapshot.properties)
    # PROTOCOL.md, "Append-only Tables": rows may be moved to other files.
    if append_only and proposal.removes and proposal.data_change:
        raise UnsafeTable(
            f"{snapshot.full_name} only allows appends: run ALTER TABLE {snapshot.full_name} SET TBLPROPERTIES "
            "('delta.appendOnly' = 'false') in Spark to replace or remove rows."
        )
    if not proposal.data_change:
        _check_rows_stay(snapshot, proposal)
    return proposal


def _check_rows_stay(snapshot: Snapshot, proposal: Proposal) -> None:
    """Check that a commit that only moves rows adds as many as it removes, by the log and not by whoever moved them."""
    added, removed = sum(file.rows for file in proposal.adds), 0
    for file in proposal.removes:
        rows = file.rows
        # Its writer may have stored no number.
        if rows is None and (rows := proposal.counted.get(file.key)) is None:
            raise UnsafeTable(
                f"{snapshot.full_name}: nothing says how many rows {file.path} has, so its rows cannot be moved safely. The "
                "table stays as it is: rewrite it with its own engine."
            )
        removed += rows
    if added != removed:
        raise UnsafeTable(
            f"{snapshot.full_name}: its files would have {added:,} rows in place of {removed:,} by a commit that changes no "
            "row. The table stays as it is: a file is damaged, or was changed in place. Compare each with its statistics in "
            "the log."
        )


def refuse_unsupported_features(snapshot: Snapshot, partitioned: bool = False) -> None:
    """Refuse a table that is not safe to write to, or that is partitioned, unless the writer says that it can do that.

    Raises:
        UnsafeTable: the message names the feature, and what to do.
    """
    prefix = "delta.feature."
    features = {key.removeprefix(prefix) for key in snapshot.properties if key.startswith(prefix)}
    use = Use.MOVE if partitioned else Use.APPEND
    refuse(snapshot.full_name, snapshot.properties, snapshot.partition_columns, use)
    if unsupported := sorted(features - _SUPPORTED - {"columnMapping"}):
        raise UnsafeTable(f"{snapshot.full_name} requires writers to support {', '.join(unsupported)}: write it with Spark.")
    for column in snapshot.fields:
        if required := next(_requirements(column["type"], column.get("metadata") or {}), None):
            raise UnsafeTable(f"{snapshot.full_name}, column {column['name']}: has {required}. Write it with Spark.")


def _requirements(type_: Any, metadata: Mapping[str, Any]) -> Generator[str]:
    """What a column requires of its writers beyond its type: readers rely on it, and show 0 where they find NULL."""
    if "delta.invariants" in metadata:
        yield "invariants"
    # Spark pads a char to this length when it reads.
    if length := metadata.get("__CHAR_VARCHAR_TYPE_STRING"):
        yield f"the type {length}"
    if not isinstance(type_, dict):
        return
    keys = {key.lower().replace("-", ""): value for key, value in cast("Json", type_).items()}
    fields: list[Json] = keys.get("fields", [])
    if not all([keys.get("containsnull", True), keys.get("valuecontainsnull", True), *(f["nullable"] for f in fields)]):
        yield "parts that must not be NULL"
    for part in (keys.get("elementtype"), keys.get("keytype"), keys.get("valuetype")):
        yield from _requirements(part, {})
    for inner in fields:
        yield from _requirements(inner["type"], inner.get("metadata") or {})

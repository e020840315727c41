"""What a table asks of those who write to it. One that asks for more than is known here is not written to."""

from collections.abc import Generator, Mapping
from typing import Any, cast

from resources.delta.snapshot import Json, Snapshot
from resources.errors import UnsafeTable

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


def refuse_unsupported_features(snapshot: Snapshot) -> None:
    """Refuse a table that is not safe to write to.

    Raises:
        UnsafeTable: it names what the table asks for, and what to do.
    """
    prefix = "delta.feature."
    features = {key.removeprefix(prefix) for key in snapshot.properties if key.startswith(prefix)}
    mode = snapshot.properties.get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise UnsafeTable(
            f"{snapshot.full_name} has column mapping ({mode}): rows that DuckDB writes to it read as NULL in every engine. "
            f"Run ALTER TABLE {snapshot.full_name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none') in Spark before "
            "DuckDB's first write, or drop the table and let it be created again."
        )
    if unsupported := sorted(features - _SUPPORTED - {"columnMapping"}):
        raise UnsafeTable(f"{snapshot.full_name} asks its writers for {', '.join(unsupported)}: write it with Spark.")
    if snapshot.partition_columns:
        raise UnsafeTable(f"{snapshot.full_name} is partitioned: write it with Spark, or cluster it instead.")
    for column in snapshot.fields:
        if asks := next(_asked(column["type"], column.get("metadata") or {}), None):
            raise UnsafeTable(f"{snapshot.full_name}, column {column['name']}: has {asks}. Write it with Spark.")


def _asked(type_: Any, metadata: Mapping[str, Any]) -> Generator[str]:
    """What a column asks of its writers beyond its type: a reader takes it for given, and shows 0 where it finds NULL."""
    if "delta.invariants" in metadata:
        yield "invariants"
    # A length, to which Spark pads a char as it reads.
    if length := metadata.get("__CHAR_VARCHAR_TYPE_STRING"):
        yield f"the type {length}"
    if not isinstance(type_, dict):
        return
    said = {key.lower().replace("-", ""): value for key, value in cast("Json", type_).items()}
    fields: list[Json] = said.get("fields", [])
    if not all([said.get("containsnull", True), said.get("valuecontainsnull", True), *(f["nullable"] for f in fields)]):
        yield "parts that must not be NULL"
    for part in (said.get("elementtype"), said.get("keytype"), said.get("valuetype")):
        yield from _asked(part, {})
    for inner in fields:
        yield from _asked(inner["type"], inner.get("metadata") or {})

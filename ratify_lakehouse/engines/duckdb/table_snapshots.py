"""Rows of a table as it was at one of its versions, as a query of DuckDB's over its data files."""

import json
from collections.abc import Sequence
from contextlib import ExitStack

from ratify_lakehouse.declarations import ROW_TRACKING
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.retained_versions import paths_of
from ratify_lakehouse.delta.snapshot import LiveFile, Snapshot
from ratify_lakehouse.delta.table_version import first_version, table_version
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.duckdb_errors import all_translated
from ratify_lakehouse.engines.duckdb.live_rows import FILE, LiveRows, live_rows
from ratify_lakehouse.errors import UnsafeTable, VersionMissing
from ratify_lakehouse.sql.duckdb_sql import identifier
from ratify_lakehouse.wording import counted

_COPY = "ratify_rows"
_READ_HERE = frozenset(
    {"catalogManaged", "columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
)
"""Features that a table asks its readers for, and that this knows; column mapping is refused by `live_rows`."""


def rows_at(session: DuckDBSession, log: DeltaLog, latest: Snapshot, version: int) -> str:
    """Return the query for the rows that a table had at a version, with the columns that it had then.

    The rows stay in their files: DuckDB reads them when the query runs, without the columns that it does not need and the
    row groups that its conditions exclude. Files of a remote storage are read at once, into a table.

    Args:
        session: Of an engine of its own: the tables that the query needs are for all cursors of the engine.
        log: The table's.
        latest: The snapshot that the log returned last.
        version: The version.

    Raises:
        VersionMissing: the table has no such version, or its log or files of it were removed since.
        UnsafeTable: the version has column mapping, or another feature that is not known here.
        StorageUnavailable, LogUnreadable.
    """
    snapshot, files = snapshot_at(log, latest, version)
    with ExitStack() as stack, all_translated(f"read version {version} of {latest.full_name}", "Read it with Spark."):
        query = _query(session, stack.enter_context(live_rows(session.con, log.storage, snapshot, files)))
        if log.storage.local:
            share_temporary_tables(session)
            return query
        # Copies of remote files end with the block.
        session.con.execute(f"CREATE TABLE {_COPY} AS {query}")
        return f"FROM {_COPY}"


def share_temporary_tables(session: DuckDBSession) -> None:
    """Make the temporary tables of a session tables of its engine, by the same names, which all cursors see."""
    listed = "SELECT table_name FROM duckdb_tables() WHERE temporary AND starts_with(table_name, 'ratify_')"
    for (name,) in session.con.execute(listed).fetchall():
        session.con.execute(f"CREATE TABLE memory.main.{name} AS FROM temp.main.{name}")
        session.con.execute(f"DROP TABLE temp.main.{name}")


def snapshot_at(log: DeltaLog, latest: Snapshot, version: int) -> tuple[Snapshot, Sequence[LiveFile]]:
    """Return a table as it was at a version, to be read, and its data files; arguments and errors as those of `rows_at`."""
    name = latest.full_name
    if not 0 <= version <= latest.version:
        raise VersionMissing(f"{name} has no version {version}, only 0 to {latest.version}.")
    try:
        then = table_version(log, version)
    except FileNotFoundError as error:
        raise VersionMissing(
            f"The log of {name} cannot tell version {version} any more, because its older part was removed: it can from "
            f"version {first_version(log, latest.version)} on."
        ) from error
    if unknown := sorted({*(then.state.protocol.get("readerFeatures") or ())} - _READ_HERE):
        raise UnsafeTable(f"{name}, version {version}, asks its readers for {', '.join(unknown)}: read it with Spark.")
    metadata = then.state.metadata
    properties: dict[str, str] = metadata.get("configuration") or {}
    # Ids of rows are for who moves them.
    then.state.metadata = {**metadata, "configuration": {k: v for k, v in properties.items() if k != ROW_TRACKING}}
    snapshot = Snapshot(
        full_name=name,
        version=version,
        uuid=latest.uuid,
        location=latest.location,
        fields=json.loads(metadata["schemaString"])["fields"],
        properties=properties,
        partition_columns=metadata.get("partitionColumns") or [],
        state=then.state,
    )
    files = [*then.files.values()]
    gone = [path for file in files for path in paths_of(snapshot, file.add) if not log.storage.exists(path)]
    if gone:
        raise VersionMissing(
            f"Version {version} of {name} cannot be read any more: {counted(len(gone), 'file')} of it, such as {gone[0]}, "
            "is gone. `ratify clean` removes files of versions that are older than the table's retention."
        )
    return snapshot, files


def _query(session: DuckDBSession, live: LiveRows) -> str:
    """The columns in table order; those of partitions have their values in the log."""
    types = live.snapshot.column_types
    names = ", ".join(map(identifier, types))
    partitions = live.snapshot.partition_columns
    if not partitions:
        return f"SELECT {names} FROM ({live.select()})"
    columns = ", ".join(f"{identifier(name)} {types[name].sql}" for name in partitions)
    session.con.execute(f"CREATE TEMP TABLE ratify_partitions ({FILE} VARCHAR, {columns})")
    # PROTOCOL.md, "Partition Value Serialization": an empty text is NULL.
    values = [
        [path, *(file.add["partitionValues"].get(name) or None for name in partitions)] for path, file in live.files.items()
    ]
    if values:
        places = ", ".join(["?", *(f"CAST(? AS {types[name].sql})" for name in partitions)])
        session.con.executemany(f"INSERT INTO ratify_partitions VALUES ({places})", values)
    return f"SELECT {names} FROM ({live.select()}) JOIN ratify_partitions USING ({FILE})"

"""updateTable: requirements, metadata changes and the arbitration of commits, in one transaction.

Rules: unity-catalog-delta-v1.yaml (DeltaUpdateTableRequest) and ManagedTablesSpec.md, "Write a Commit".
"""

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import BigInteger, Connection, String, bindparam, delete, insert, select, update

from ratify_lakehouse.embedded.catalog import table_contract
from ratify_lakehouse.embedded.catalog.api_errors import (
    CommitVersionConflictError,
    InvalidParameterError,
    ResourceExhaustedError,
    UpdateRequirementConflictError,
)
from ratify_lakehouse.embedded.catalog.column_json import check_column_references, check_struct
from ratify_lakehouse.embedded.catalog.delta_models import AddCommit, ProposedCommit, UpdateTable
from ratify_lakehouse.embedded.catalog.store.catalog_database import now_ms
from ratify_lakehouse.embedded.catalog.store.database_schema import catalogs, commits, schemas, tables, with_parents
from ratify_lakehouse.embedded.catalog.store.table_store import Json, Table, get_table, replace_table
from ratify_lakehouse.embedded.catalog.update_plan import UpdatePlan

# The number of published commits whose file names stay in the store, so that a writer that lost the answer can still
# replay a commit after others have published it and committed more.
REPLAY_WINDOW = 100

# Built once, and bound for each use: constructing these statements costs more than running them.
_TABLE, _VERSION = bindparam("of_table", type_=String()), bindparam("at_version", type_=BigInteger())
_COMMIT = ("version", "timestamp", "file_name", "file_size", "file_modification_timestamp")
_WAITING = (
    select(*(commits.c[name].label(name.replace("_", "-")) for name in _COMMIT))
    .where(commits.c.table_id == _TABLE, commits.c.version > _VERSION)
    .order_by(commits.c.version.desc())
)
_FILE_NAME = select(commits.c.file_name).where(commits.c.table_id == _TABLE, commits.c.version == _VERSION)
_ADD = insert(commits)
_FORGET = delete(commits).where(commits.c.table_id == _TABLE, commits.c.version <= _VERSION)
_MOVE = (
    update(tables)
    .where(tables.c.id == _TABLE)
    .values(latest_version=bindparam("latest"), backfilled_version=bindparam("backfilled"))
)
# Ratified commits of a table that may wait to be published.
_MAX_UNPUBLISHED_COMMITS = 100
_UNPUBLISHED = tables.c.latest_version - tables.c.backfilled_version

_STAGED_FILE = re.compile(r"(\d{20})\.[0-9A-Za-z-]+\.json")


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table with its unpublished commits, newest first: what loadTable answers."""

    table: Table
    commits: list[Json]
    outcome: Literal["ratified", "replayed"] | None = None
    """Of the commit that was proposed, if one was."""


def new_etag() -> str:
    """An opaque token that no other state of any table has."""
    return f"etag-{secrets.token_hex(8)}"


def load(tx: Connection, table: Table) -> LoadedTable:
    """The unpublished commits of a table in the same snapshot."""
    if table.latest_version is None or table.latest_version == table.backfilled_version:
        return LoadedTable(table, [])
    rows = tx.execute(_WAITING, {"of_table": table.id, "at_version": table.backfilled_version}).mappings()
    return LoadedTable(table, [dict(row) for row in rows])


def waiting_commits(table: Table, rows: Iterable[Mapping[str, Any]]) -> list[Json]:
    """The unpublished ones among rows of `commits` of a table, as `LoadedTable` has them."""
    waiting = [row for row in rows if row["version"] > (table.backfilled_version or 0)]
    newest = sorted(waiting, key=lambda row: -row["version"])
    return [{name.replace("_", "-"): row[name] for name in _COMMIT} for row in newest]


def unpublished_by_table(tx: Connection) -> Iterator[tuple[tuple[str, str, str], int]]:
    """Full name, and how many ratified commits wait to be published, of each table that has any."""
    chosen = select(catalogs.c.name, schemas.c.name, tables.c.name, _UNPUBLISHED).select_from(with_parents(tables))
    for catalog, schema, table, count in tx.execute(chosen.where(_UNPUBLISHED > 0)):
        yield (catalog, schema, table), count


def update_table(tx: Connection, names: tuple[str, str, str], request: UpdateTable) -> LoadedTable:
    """Apply every action, or none.

    Raises InvalidParameterError, NoSuchTableError, UpdateRequirementConflictError, CommitVersionConflictError or
    ResourceExhaustedError. A replayed commit (same version, same file) changes nothing and succeeds.
    """
    plan = UpdatePlan.of(request)
    table = get_table(tx, *names)
    if plan.table_uuid != table.id:
        raise UpdateRequirementConflictError(
            f"{table.full_name} is table {table.id}, not {plan.table_uuid}; it was dropped and created again. Reload it."
        )
    plan.check_applies_to(table)
    if plan.commit and _ratified_file(tx, table, plan.commit.commit.version) == plan.commit.commit.file_name:
        return replace(load(tx, table), outcome="replayed")
    if plan.etag not in (None, table.etag):
        raise UpdateRequirementConflictError(
            f"The metadata of {table.full_name} changed: its etag is {table.etag}, not {plan.etag}. Reload it."
        )
    changed = _with_metadata(table, plan)
    changed = _with_published(changed, plan.published_version)
    if plan.commit:
        changed = _with_commit(changed, plan.commit)
    _write(tx, table, changed, plan.commit)
    return replace(load(tx, changed), outcome="ratified" if plan.commit else None)


def _ratified_file(tx: Connection, table: Table, version: int) -> str | None:
    return tx.scalar(_FILE_NAME, {"of_table": table.id, "at_version": version})


def _with_metadata(table: Table, plan: UpdatePlan) -> Table:
    changed = plan.apply(table)
    if changed == table:
        return table
    check_table(changed)
    # Row tracking's high-water mark moves with every insert: it is data, and must not make other writers' assert-etag fail.
    domains = {key: value for key, value in changed.domains.items() if key != table_contract.ROW_TRACKING}
    before = {key: value for key, value in table.domains.items() if key != table_contract.ROW_TRACKING}
    if replace(changed, domains=domains) == replace(table, domains=before):
        return changed
    changed = replace(changed, etag=new_etag(), updated_at=now_ms())
    if plan.commit:
        commit = plan.commit.commit
        return replace(changed, last_update_version=commit.version, last_commit_timestamp=commit.timestamp)
    return changed


def check_table(table: Table) -> None:
    """Raise InvalidParameterError unless a Delta table's metadata is sound and fulfils its contract."""
    check_struct(table.columns, delta=table.data_source_format == "DELTA")
    clustering = table.domains.get(table_contract.CLUSTERING, {}).get("clusteringColumns", [])
    check_column_references(table.columns, table.partition_columns, clustering)
    if table.protocol is None:
        return
    table_contract.check_protocol(table.protocol)
    table_contract.check_domains(table.domains, table.protocol)
    if table.managed:
        table_contract.check_managed(table.id, table.protocol, table.properties)
    else:
        table_contract.check_external(table.protocol)


def _with_published(table: Table, version: int | None) -> Table:
    if version is None or table.latest_version is None or table.backfilled_version is None:
        return table
    if version > table.latest_version:
        raise InvalidParameterError(
            f"Version {version} of {table.full_name} cannot be published: the last ratified version is "
            f"{table.latest_version}."
        )
    return replace(table, backfilled_version=max(version, table.backfilled_version))


def _with_commit(table: Table, action: AddCommit) -> Table:
    latest, commit = table.latest_version or 0, action.commit
    if commit.version <= latest:
        raise CommitVersionConflictError(f"Commit version already accepted. Current table version is {latest}")
    if commit.version > latest + 1:
        raise CommitVersionConflictError(f"Commit version {commit.version} leaves a gap. Current table version is {latest}")
    _check_commit(commit)
    unpublished = latest - (table.backfilled_version or 0)
    if unpublished >= _MAX_UNPUBLISHED_COMMITS:
        raise ResourceExhaustedError(
            f"{table.full_name} has {unpublished} unpublished commits, which is the limit: publish them to "
            "_delta_log and send set-latest-backfilled-version, then commit again."
        )
    return replace(table, latest_version=commit.version)


def _check_commit(commit: ProposedCommit) -> None:
    name = _STAGED_FILE.fullmatch(commit.file_name)
    if name is None or int(name[1]) != commit.version:
        raise InvalidParameterError(
            f"file-name {commit.file_name!r} is not that of a staged commit of version {commit.version}: "
            f"{commit.version:020d}.<uuid>.json"
        )


def _write(tx: Connection, before: Table, after: Table, action: AddCommit | None) -> None:
    if action:
        tx.execute(_ADD, {"table_id": after.id, **action.commit.model_dump()})
    if after.backfilled_version != before.backfilled_version:
        forget_to = min(after.backfilled_version or 0, (after.latest_version or 0) - REPLAY_WINDOW)
        tx.execute(_FORGET, {"of_table": after.id, "at_version": forget_to})
    versions = {"latest_version": after.latest_version, "backfilled_version": after.backfilled_version}
    if replace(before, **versions) == after:
        moved = {"of_table": after.id, "latest": after.latest_version, "backfilled": after.backfilled_version}
        tx.execute(_MOVE, moved)
    else:
        replace_table(tx, after)

"""Commit reports in the store: the last of each table. Every function takes the transaction it runs in."""

from typing import Any

from sqlalchemy import Connection, String, bindparam, delete, insert, select

from embedded.catalog.store.catalog_database import now_ms
from embedded.catalog.store.database_schema import commit_reports

KEPT = 100
"""Reports of a table that are kept: enough to see how its commits change, whatever clients send."""

_TABLE = bindparam("of_table", type_=String())
_others = commit_reports.alias()
_LAST = select(_others.c.id).where(_others.c.table_id == _TABLE).order_by(_others.c.id.desc()).offset(KEPT).limit(1)
_FORGET = delete(commit_reports).where(commit_reports.c.table_id == _TABLE, commit_reports.c.id <= _LAST.scalar_subquery())


def keep(tx: Connection, table_id: str, report: dict[str, Any]) -> None:
    """Keep a report, and forget the oldest of its table beyond the limit."""
    tx.execute(insert(commit_reports), {"table_id": table_id, "reported_at": now_ms(), "report": report})
    tx.execute(_FORGET, {"of_table": table_id})


def newest(tx: Connection, table_id: str) -> list[tuple[int, dict[str, Any]]]:
    """When each report came, and what it says, newest first."""
    chosen = select(commit_reports.c.reported_at, commit_reports.c.report).where(commit_reports.c.table_id == table_id)
    return [(row.reported_at, row.report) for row in tx.execute(chosen.order_by(commit_reports.c.id.desc()))]

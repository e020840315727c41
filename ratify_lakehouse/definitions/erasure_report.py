"""The report of an erasure, as JSON and Markdown: what is gone, and what remains until when. It names nobody."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ratify_lakehouse.components.maintenance_metadata import markdown_table
from ratify_lakehouse.definitions.erasure_plan import ErasurePlan, utc
from ratify_lakehouse.definitions.subject_erasure import ErasureDone
from ratify_lakehouse.durable_files import write_durably
from ratify_lakehouse.engines.duckdb.subject_search import HeldIn
from ratify_lakehouse.wording import counted


def planned(plan: ErasurePlan, now: float) -> dict[str, Any]:
    """Return a plan for JSON.

    Args:
        plan: The plan.
        now: Seconds since 1970.
    """
    return {
        "subject": {"kind": plan.kind, "hash": plan.digest},
        "looked at": utc(now),
        "tables": table_rows(plan),
        "landed files": [
            {"table": each.table, "file": each.path, "erasure": each.policy.value, "why it stays": each.stays}
            for each in plan.landed
        ],
        "remains": [asdict(each) for each in plan.remaining(now)],
        "cannot be found by subject": dict(plan.unfound),
        "not erased": plan.not_erased(),
    }


def done(erasure: ErasureDone, reason: str, now: float) -> dict[str, Any]:
    """Return what an erasure did, for JSON.

    Args:
        erasure: What it did.
        reason: Why.
        now: Seconds since 1970.
    """
    gone = {table.full_name: table for table in erasure.deleted}
    after = {table.full_name: {file.path for file in table.files} for table in erasure.after.tables if not table.undeclared}
    rows = [
        {
            "table": table.full_name,
            "rows deleted": gone[table.full_name].rows if table.full_name in gone else 0,
            "in version": gone[table.full_name].version if table.full_name in gone else "",
            "files of the subject that are gone": len(
                {file.path for file in table.files} - after.get(table.full_name, set())
            ),
            "files removed in all": erasure.files_removed.get(table.full_name, 0),
            "not removed": erasure.not_removed.get(table.full_name, ""),
        }
        for table in erasure.before.tables
        if not table.undeclared
    ]
    return planned(erasure.after, now) | {
        "reason": reason,
        "gone": rows,
        "landed files deleted": [f"{each.table}: {each.path}" for each in erasure.landed_deleted],
        "landed files rewritten": [
            f"{each.file.table}: {each.file.path}, without {counted(each.rows, 'row')}" for each in erasure.landed_rewritten
        ],
    }


def table_rows(plan: ErasurePlan) -> list[dict[str, Any]]:
    """Return the tables of a plan, one row each."""
    return [
        {
            "table": table.full_name,
            "found by": table.found_by + (" (value alone)" if table.undeclared else ""),
            "rows": table.rows,
            "of the subject": table.matched,
            **{kind.value + "s": len(table.files_of(kind)) for kind in HeldIn},
            "refused": table.refused,
        }
        for table in plan.tables
    ]


def markdown(report: dict[str, Any]) -> str:
    """Return a report as Markdown."""
    subject = report["subject"]
    lines = [f"# Erasure of a {subject['kind']}, {subject['hash']}", "", f"{report['looked at']}. {report['reason']}", ""]
    for title in ("gone", "tables", "remains"):
        lines += [f"## {title.capitalize()}", "", _table(report[title]), ""]
    for title in ("landed files deleted", "landed files rewritten"):
        lines += [f"## {title.capitalize()}", "", *(f"- {each}" for each in report[title] or ["none"]), ""]
    return "\n".join(lines)


def _table(rows: Sequence[dict[str, Any]]) -> str:
    return markdown_table(rows) or "nothing"


def write_report(report: dict[str, Any], home: Path, now: float) -> Path:
    """Write a report into RATIFY_HOME, readable to its owner; return the path of the Markdown, beside which the JSON is."""
    name = f"{utc(now)[:16].replace(' ', 'T').replace(':', '')}-{report['subject']['hash']}"
    file = home / "erasures" / f"{name}.md"
    write_durably(file.with_suffix(".json"), json.dumps(report, indent=2, default=str).encode())
    write_durably(file, markdown(report).encode())
    return file

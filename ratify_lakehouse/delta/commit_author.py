"""Who made a commit: neither Delta's log nor the catalog says it, so our writers record it in their user metadata."""

import json
from collections.abc import Mapping
from typing import Any

import dagster as dg

_PRINCIPAL, _RUN = "principal", "run"


def authored_by(principal: str | None, run_id: str | None = None, record: str = "") -> str:
    """Return a record, a JSON object, with the author of the commit that has it.

    Args:
        principal: Who the catalog says that the writer is.
        run_id: Dagster's run that writes.
        record: What else the commit records.
    """
    author = {_PRINCIPAL: principal, _RUN: run_id}
    content: dict[str, Any] = json.loads(record) if record else {}
    return json.dumps({**content, **{name: value for name, value in author.items() if value}}, sort_keys=True)


def author_of(record: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the principal and the Dagster run of a commit by its record; None where it does not say."""
    return record.get(_PRINCIPAL), record.get(_RUN)


def current_run_id() -> str | None:
    """Return the id of the Dagster run whose step this thread executes; None outside of one."""
    try:
        return dg.OpExecutionContext.get().run_id
    except dg.DagsterInvariantViolationError:
        return None

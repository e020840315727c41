"""Expectations as Dagster's asset checks: one for each, with counts, rates and examples."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectation, Expectations, Unique
from ratify_lakehouse.components.expectations.validation import ValidationResult
from ratify_lakehouse.components.table_preview import rows_table

_JSON = json.JSONDecoder()
_OF_VALIDATION = {"failed", "decided_by"}
"""Columns that `Expectations.validated` adds to a row: the check itself says what they do."""
_BETWEEN = re.compile(r"[\s,:]*")


def check_specs(expectations: Expectations, key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """Return the specs of a table's expectations; the asset itself yields their results."""
    return [
        dg.AssetCheckSpec(rule.name, asset=key, description=_described(rule), blocking=rule.action is Action.FAIL)
        for rule in expectations.all
    ]


def check_results(
    expectations: Expectations, key: dg.AssetKey, found: ValidationResult, failing_stored: Mapping[str, int] | None = None
) -> Iterator[dg.AssetCheckResult]:
    """Yield the result of each expectation: a failure is an ERROR where it stops the batch, else a WARN.

    Args:
        expectations: The table's.
        key: Of its asset.
        found: In the rows that were validated.
        failing_stored: Where these are not all rows: by expectation, how many rows of the table or its quarantine fail it.
    """
    for rule in expectations.all:
        failed, in_all = found.failed.get(rule.name, 0), (failing_stored or {}).get(rule.name)
        metadata: dict[str, Any] = {
            "rows": found.rows,
            "failed": failed,
            "failed rate": failed / found.rows if found.rows else 0.0,
            "action": rule.action.value,
        }
        if in_all is not None:
            metadata["failed in all"] = in_all
        if isinstance(rule, Unique):
            metadata["superseded"] = found.decided.get(rule.name, 0)
        if shown := found.examples.get(rule.name):
            metadata["examples"] = examples_table(shown)
        yield dg.AssetCheckResult(
            asset_key=key,
            check_name=rule.name,
            passed=not failed and not in_all,
            severity=dg.AssetCheckSeverity.ERROR if rule.action is Action.FAIL else dg.AssetCheckSeverity.WARN,
            description=_result(rule, found, in_all, partial=failing_stored is not None),
            metadata=metadata,
        )


def _result(rule: Expectation | Unique, found: ValidationResult, in_all: int | None, *, partial: bool) -> str:
    which = "rows that this run computed" if partial else "rows"
    failed = found.failed.get(rule.name, 0)
    if isinstance(rule, Unique):
        tied = f"{failed:,} of them tie with it, so either may have won" if failed else "none ties with it"
        superseded = found.decided.get(rule.name, 0)
        return f"{superseded:,} of {found.rows:,} {which} are superseded by the latest row with the same keys; {tied}."
    others = "" if in_all is None else f", and {in_all:,} of all rows"
    return f"{failed:,} of {found.rows:,} {which} fail{others}; action: {rule.action}."


def _described(rule: Expectation | Unique) -> str:
    if isinstance(rule, Unique):
        keys, latest = ", ".join(rule.keys), ", ".join(rule.latest)
        return f"Of rows with the same {keys}, the latest by {latest} wins, and none ties with it"
    return ". ".join(filter(None, (rule.description, f"Rows that fail `{rule.predicate}`: {rule.action}")))


def examples_table(examples: Sequence[str]) -> dg.TableMetadataValue:
    """Return rows, each given as the JSON text of its columns, as a table; other texts are its column `row`."""
    rows = [_columns(example) for example in examples]
    names = dict.fromkeys(name for row in rows for name in row)
    return rows_table(rows, [name for name in names if name not in _OF_VALIDATION])


def _columns(example: str) -> Mapping[str, Any]:
    """The columns in a JSON text, as far as it goes: that of a long row is cut."""
    found, at = dict[str, Any](), 1
    try:
        while example.startswith("{") and example[at:].strip() not in ("", "}"):
            name, at = _JSON.raw_decode(example, _BETWEEN.match(example, at).end())  # pyright: ignore[reportOptionalMemberAccess]
            # A value that is cut shows its beginning.
            found[str(name)] = example[at:].lstrip(": ")
            found[str(name)], at = _JSON.raw_decode(example, _BETWEEN.match(example, at).end())  # pyright: ignore[reportOptionalMemberAccess]
    except ValueError:
        pass
    return found or {"row": example}

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
        if shown := found.examples.get(rule.name):
            metadata["examples"] = examples_table(shown)
        yield dg.AssetCheckResult(
            asset_key=key,
            check_name=rule.name,
            passed=not failed and not in_all,
            severity=dg.AssetCheckSeverity.ERROR if rule.action is Action.FAIL else dg.AssetCheckSeverity.WARN,
            description=_result(found.rows, failed, in_all, rule.action, partial=failing_stored is not None),
            metadata=metadata,
        )


def _result(rows: int, failed: int, in_all: int | None, action: Action, *, partial: bool) -> str:
    which = "rows that this run computed" if partial else "rows"
    others = "" if in_all is None else f"; of all rows {in_all:,}"
    return f"{failed:,} of {rows:,} {which} fail{others}; action: {action}."


def _described(rule: Expectation | Unique) -> str:
    rule_text = rule.predicate if isinstance(rule, Expectation) else f"one row for each {', '.join(rule.keys)}"
    return ". ".join(filter(None, (rule.description, f"Rows that fail `{rule_text}`: {rule.action}")))


def examples_table(examples: Sequence[str]) -> dg.TableMetadataValue:
    """Return rows, each given as the JSON text of its columns, as a table; other texts are its column `row`."""
    rows = [_columns(example) for example in examples]
    return rows_table(rows, dict.fromkeys(name for row in rows for name in row))


def _columns(example: str) -> Mapping[str, Any]:
    """The columns in a JSON text, as far as it goes: that of a long row is cut."""
    found, at = dict[str, Any](), 1
    try:
        while example.startswith("{") and example[at:].strip() not in ("", "}"):
            name, at = _JSON.raw_decode(example, _BETWEEN.match(example, at).end())  # pyright: ignore[reportOptionalMemberAccess]
            # What a cut leaves of a value is shown, too.
            found[str(name)] = example[at:].lstrip(": ")
            found[str(name)], at = _JSON.raw_decode(example, _BETWEEN.match(example, at).end())  # pyright: ignore[reportOptionalMemberAccess]
    except ValueError:
        pass
    return found or {"row": example}

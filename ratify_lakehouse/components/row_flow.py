"""The rows that a materialization read, and what became of them: the same names on the page of each kind of table."""

from collections.abc import Mapping

from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectations
from ratify_lakehouse.components.expectations.validation import ValidationResult

IN_QUARANTINE = "rows in quarantine"
"""All rows that the quarantine of a table has by now."""

ROW_FLOW = ("rows in", "rows out", "rows quarantined", "rows dropped", "duplicates", "rows late")


def row_flow(
    rows: int,
    accepted: int,
    quarantined: int | None = None,
    dropped: int | None = None,
    duplicates: int | None = None,
    late: int | None = None,
) -> Mapping[str, int]:
    """Return the numbers by `ROW_FLOW`, without those that a table cannot have."""
    numbers = (rows, accepted, quarantined, dropped, duplicates, late)
    return {name: number for name, number in zip(ROW_FLOW, numbers, strict=True) if number is not None}


def validated_flow(expectations: Expectations, found: ValidationResult) -> Mapping[str, int]:
    """Return the flow of rows that expectations have validated."""
    unique = found.decided.get(expectations.unique.name, 0) if expectations.unique else None
    dropped = found.sum_of(expectations, Action.DROP) - (unique or 0)
    drops = any(rule.action is Action.DROP for rule in expectations.rules)
    quarantines = bool(expectations.named(Action.QUARANTINE))
    return row_flow(
        found.rows,
        found.accepted,
        quarantined=found.sum_of(expectations, Action.QUARANTINE) if quarantines else None,
        dropped=dropped if drops else None,
        duplicates=unique,
    )

"""The result of validating rows: counts and examples, which add up over batches."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectations
from ratify_lakehouse.errors import ExpectationFailed
from ratify_lakehouse.wording import counted

EXAMPLES = 3
"""Failed rows in the examples of each expectation, at most."""


@dataclass(frozen=True)
class ValidationResult:
    """Counts over validated rows, all by the names of expectations.

    Attributes:
        rows: Rows that were validated.
        failed: Rows that fail each expectation; a row may fail several.
        decided: Rows decided by each expectation; each row at most once.
        examples: Some of the rows that failed, as text.
    """

    rows: int = 0
    failed: Mapping[str, int] = field(default_factory=dict[str, int])
    decided: Mapping[str, int] = field(default_factory=dict[str, int])
    examples: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])

    @property
    def accepted(self) -> int:
        """Rows that no expectation decided."""
        return self.rows - sum(self.decided.values())

    def sum_of(self, expectations: Expectations, action: Action) -> int:
        """Return the rows that an action was taken on."""
        return sum(self.decided.get(name, 0) for name in expectations.named(action))


def validation_result(row: Mapping[str, Any]) -> ValidationResult:
    """Return the result in a row of the query `Expectations.counted`."""
    return ValidationResult(**{name: row[name] for name in ("rows", "failed", "decided", "examples") if name in row})


def rows_failed(table: str, names: Iterable[str], found: Mapping[str, Any]) -> ExpectationFailed:
    """Return the error for rows that fail expectations whose action is to fail.

    Args:
        table: The table, to which nothing was written.
        names: The expectations.
        found: The row of the query `Expectations.counted`.
    """
    counts: Mapping[str, int] = {name: found["failed"][name] for name in names}
    failing = ", ".join(f"{number:,} fail{'s' if number == 1 else ''} {name}" for name, number in counts.items())
    return ExpectationFailed(
        f"Nothing was written to {table}: of {counted(found['rows'], 'row')}, {failing}. Correct the source, or let the "
        "expectation quarantine such rows; its check shows examples.",
        found,
    )


def total(results: Iterable[ValidationResult]) -> ValidationResult:
    """Add up what was found in several batches."""
    rows, failed, decided = 0, Counter[str](), Counter[str]()
    examples = dict[str, Sequence[str]]()
    for one in results:
        rows += one.rows
        failed.update(one.failed)
        decided.update(one.decided)
        for name, shown in one.examples.items():
            examples[name] = [*examples.get(name, ()), *shown][:EXAMPLES]
    return ValidationResult(rows, failed, decided, examples)

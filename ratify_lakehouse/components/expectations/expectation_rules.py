"""Expectations on rows, as Delta Live Tables has them: a name, a predicate in SQL, and what to do with a row that fails.

All expectations of a table are validated in one pass over its rows, in a batch as in a stream: the query that computes the
rows gets a column with the names of those that a row fails (`failed`), and one with the name of the one that decides its
outcome (`decided_by`, NULL for an accepted row).

A predicate has to be TRUE for a row to pass; NULL fails, as FALSE does. Databricks documents that a row is valid where "the
boolean statement" returns true and leaves NULL open; a predicate that accepts NULL has to name it (`x IS NULL OR x > 0`).
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from ratify_lakehouse.components.expectations.rule_dialects import SPARK, RuleDialect
from ratify_lakehouse.declarations import IDENTIFIER
from ratify_lakehouse.errors import UnsafeDeclaration

EXAMPLE_CHARACTERS = 1000
"""Characters of a failed row in an example, at most."""


class Action(StrEnum):
    """What happens to a row that fails: it is accepted (WARN), dropped, quarantined, or stops its whole batch (FAIL)."""

    WARN = "warn"
    DROP = "drop"
    QUARANTINE = "quarantine"
    FAIL = "fail"


# Where a row fails several expectations, the first action here decides: nothing is dropped that could be corrected.
_DECISIVE = (Action.FAIL, Action.QUARANTINE, Action.DROP)
_BOUNDS = (("min", "lower"), ("max", "upper"))


@dataclass(frozen=True)
class Expectation:
    """A predicate, in the SQL of the engine that computes the rows, that has to be TRUE for each of them."""

    name: str
    predicate: str
    action: Action = Action.WARN
    description: str = ""


@dataclass(frozen=True)
class Unique:
    """At most one row has the same values of `keys`.

    Of several the one passes that is last by the columns `latest`; the others are superseded, as a row is by its
    correction, and dropped. Rows that tie for the last fail: any of them may be the one that passes. Only rows that pass
    all else compete, within one batch; rows of earlier batches are up to the MERGE that writes the rows.
    """

    name: str
    keys: tuple[str, ...]
    latest: tuple[str, ...]
    action: Action = Action.DROP
    description: str = ""


@dataclass(frozen=True)
class Expectations:
    """All expectations of one table. The order counts: of those with one action the first that fails is the reason.

    Attributes:
        rules: The predicates.
        identity: Columns that identify a row.
        example: SQL text that shows a row that failed; empty: all its columns but the personal ones, as JSON.
        unique: Validated after all others.
        raw: Columns of quarantined rows only; the other rows do without them, which saves memory.
        dialect: The SQL of the engine that computes the rows.
        personal: Columns with personal data. Examples, which the UI and ledgers keep, are without them.

    Raises:
        UnsafeDeclaration: a name is not a plain identifier, or used twice, or uniqueness has an action other than to drop.
    """

    rules: tuple[Expectation, ...]
    identity: tuple[str, ...]
    example: str = ""
    unique: Unique | None = None
    raw: tuple[str, ...] = ()
    dialect: RuleDialect = SPARK
    personal: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [rule.name for rule in self.all]
        for number, name in enumerate(names):
            if not IDENTIFIER.fullmatch(name) or name in names[:number]:
                raise UnsafeDeclaration(
                    f"The name {name!r} is used twice or is not a plain identifier: rename it.", "expectations", number
                )
        if self.unique and self.unique.action is not Action.DROP:
            raise UnsafeDeclaration(f"{self.unique.name}: of rows with one key only the last is accepted: use DROP.")

    @property
    def all(self) -> tuple[Expectation | Unique, ...]:
        """Every expectation."""
        return (*self.rules, *([self.unique] if self.unique else []))

    def named(self, action: Action) -> tuple[str, ...]:
        """Return the names of the expectations with an action."""
        return tuple(rule.name for rule in self.all if rule.action is action)

    def code(self, rows: str) -> str:
        """Return a text that changes if and only if the query `rows` or what is expected of its rows does."""
        return replace(self, example="", personal=()).validated(rows)

    def validated(self, rows: str) -> str:
        """Return the query that gives the rows of the query `rows` with `failed`, `decided_by` and `example`."""
        sql, literal = self.dialect, self.dialect.literal
        tested = sql.array_of(f"CASE WHEN ({rule.predicate}) THEN NULL ELSE {literal(rule.name)} END" for rule in self.rules)
        decisive = [rule.name for action in _DECISIVE for rule in self.rules if rule.action is action]
        cases = " ".join(f"WHEN array_contains(failed, {literal(name)}) THEN {literal(name)}" for name in decisive)
        decided_by = f"CASE {cases} END" if cases else "CAST(NULL AS STRING)"
        raw = [sql.identifier(name) for name in self.raw]
        quarantined_raw = [f"CASE WHEN {self.quarantined()} THEN {name} END AS {name}" for name in raw]
        excluded = f" {sql.excluding} ({', '.join(raw)})" if raw else ""
        example = self.example or sql.row_json(self.personal)
        shown = f"CASE WHEN {sql.size}(failed) > 0 THEN left({example}, {EXAMPLE_CHARACTERS}) END"
        text = (
            f"WITH ratify_rows AS (\n{rows}\n),\n"
            f"ratify_tested AS (SELECT *, {tested} AS failed FROM ratify_rows),\n"
            f"ratify_decided AS (SELECT *, {decided_by} AS decided_by FROM ratify_tested),\n"
            f"ratify_validated AS (SELECT {', '.join([f'*{excluded}', *quarantined_raw])}, "
            f"{shown} AS example FROM ratify_decided)\n"
        )
        return f"{text}{self._unique()}" if self.unique else f"{text}SELECT * FROM ratify_validated"

    def counted(self, validated: str, bounded: str = "") -> str:
        """Return the query that counts over a validated table or view, in one row; see `ValidationResult`.

        Given SQL text in `bounded`, that row also has its least and greatest value over the accepted rows: `lower`, `upper`.
        """

        sql = self.dialect

        def by_name(value: str, kind: str) -> str:
            return sql.map_of({rule.name: value.format(name=sql.literal(rule.name)) for rule in self.all}, kind)

        rows = "coalesce(sum(ratify_rows) FILTER (WHERE {0}), 0)"
        fails = "array_contains(failed, {name})"
        failed = by_name(rows.format(fails), "bigint")
        decided = by_name(rows.format("decided_by = {name}"), "bigint")
        # The first and the last: a list of all would have to fit in memory when every row fails.
        ends = sql.array_of(f"{end} FILTER (WHERE {fails})" for end in ("min(ratify_first)", "max(ratify_last)"))
        examples = by_name(sql.distinct.format(ends), sql.text_array)
        columns = [
            "coalesce(sum(ratify_rows), 0) AS rows",
            f"{failed} AS failed",
            f"{decided} AS decided",
            f"{examples} AS examples",
        ]
        grouped = ["failed", "decided_by", "count(*) AS ratify_rows"]
        grouped += ["min(example) AS ratify_first", "max(example) AS ratify_last"]
        if bounded:
            columns += [f"{end}(ratify_{end}) FILTER (WHERE {self.accepted()}) AS {name}" for end, name in _BOUNDS]
            grouped += [f"{end}({bounded}) AS ratify_{end}" for end, _ in _BOUNDS]
        # Most rows fail the same expectations, or none: each group is counted once, not once for each expectation.
        groups = f"SELECT {', '.join(grouped)} FROM {validated} GROUP BY failed, decided_by"
        return f"SELECT {', '.join(columns)} FROM ({groups})"

    def accepted(self) -> str:
        """Return the condition that a validated row is accepted."""
        return "decided_by IS NULL"

    def quarantined(self) -> str:
        """Return the condition that a validated row goes to quarantine."""
        names = ", ".join(map(self.dialect.literal, self.named(Action.QUARANTINE)))
        return f"decided_by IN ({names})" if names else "false"

    def _unique(self) -> str:
        if not self.unique:
            raise ValueError("these expectations have no unique one")
        sql, name = self.dialect, self.dialect.literal(self.unique.name)
        # Rows that do not compete are spread over partitions: those without a key would all go to one task.
        spread = f"CASE WHEN decided_by IS NOT NULL THEN {sql.hash}({sql.listed(self.identity)}) END"
        order = ", ".join(f"{sql.identifier(column)} DESC" for column in self.unique.latest)
        shown = [name for name in dict.fromkeys((*self.unique.keys, *self.identity)) if name not in self.personal]
        example = f"left({sql.json_of(shown)}, {EXAMPLE_CHARACTERS})" if shown else "CAST(NULL AS STRING)"
        race = f"OVER (PARTITION BY {sql.listed(self.unique.keys)}, {spread} ORDER BY {order})"
        superseded = "decided_by IS NULL AND ratify_place > 1"
        tied = f"{superseded} AND ratify_rank = 1"
        return (
            f", ratify_raced AS (SELECT *, row_number() {race} AS ratify_place, rank() {race} AS ratify_rank "
            "FROM ratify_validated)\n"
            f"SELECT * {sql.excluding} (ratify_place, ratify_rank, failed, decided_by, example), "
            f"CASE WHEN {tied} THEN array_append(failed, {name}) ELSE failed END AS failed, "
            f"CASE WHEN {superseded} THEN {name} ELSE decided_by END AS decided_by, "
            f"CASE WHEN {tied} THEN {example} ELSE example END AS example FROM ratify_raced"
        )

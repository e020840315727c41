"""SQL that gives the rows of a source the names and types of a destination, and says what is wrong with a row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ratify_lakehouse.column_types import DECIMAL
from ratify_lakehouse.components.expectations.rule_dialects import RuleDialect
from ratify_lakehouse.components.syncs.lossless_values import FLOATING, WHOLE_TYPES, loses, sql_name
from ratify_lakehouse.sql.partition_values import IN_DUCKDB, IN_SPARK, unusable

ERRORS, ROW, KEY_FAILED = "ratify_errors", "ratify_row", "ratify_key_failed"
"""Columns that come with the converted ones: what is wrong with the row, an array of texts; where something is, the row as
it was, if the sync has dead letters; and whether its keys cannot be known."""

_SHOWN = 60


@dataclass(frozen=True)
class ConvertedColumn:
    """A column of a destination, and the one of the source that gives its values.

    Attributes:
        name: In the destination.
        type: There, in Spark SQL's words.
        source: In the source.
        source_type: There.
        nullable: Whether the destination allows NULL.
        cast: Whether the declaration asks for the type, so that digits may be lost.
        pii: Personal data.
        partition: The destination is partitioned by it.
        length: How many characters the destination allows; 0 if any number.
    """

    name: str
    type: str
    source: str
    source_type: str
    nullable: bool = True
    cast: bool = False
    pii: bool = False
    partition: bool = False
    length: int = 0

    @property
    def same_type(self) -> bool:
        """Whether the value stays as it is."""
        return self.type == self.source_type


@dataclass(frozen=True)
class RowRules:
    """What has to hold for a row beside the types of its columns.

    Attributes:
        only_where: By column, the condition under which it has to fit; other columns always have to.
        checks: Constraints of the destination by their names: SQL of its columns, which has to be true.
        checked_where: SQL of the converted columns: of which rows.
    """

    only_where: Mapping[str, str] = field(default_factory=dict[str, str])
    checks: Mapping[str, str] = field(default_factory=dict[str, str])
    checked_where: str = "true"


def conversion_sql(
    sql: RuleDialect,
    columns: Sequence[ConvertedColumn],
    keys: Sequence[str],
    rows: str,
    letter: str,
    malformed: str = "",
    rules: RowRules | None = None,
    carried: str = "",
) -> str:
    """Return the query for the converted rows, with `ERRORS`, `ROW` and `KEY_FAILED`.

    Args:
        sql: The engine's words.
        columns: What the destination gets.
        keys: Which of these identify a row.
        rows: The rows of the source: a relation.
        letter: SQL of the text of a row as the source has it, by the bare names of its columns.
        malformed: The column of the source that has the text of a row that could not be read as one.
        rules: What else has to hold.
        carried: A column of the source that comes with the converted ones, as it is.
    """
    values = {column.name: converted(sql, column) for column in columns}
    rules = rules or RowRules()
    wanted = rules.only_where
    errors = [
        f"CASE WHEN {wanted[column.name]} THEN {each} END" if column.name in wanted else each
        for column in columns
        for each in _errors(sql, column, values[column.name])
    ]
    if malformed:
        errors.insert(0, f"CASE WHEN s.{sql.identifier(malformed)} IS NOT NULL THEN 'the line has other fields' END")
    failed = " OR ".join(
        f"(s.{sql.identifier(column.source)} IS NOT NULL AND ({_is_other(sql, column, values[column.name])}))"
        for column in columns
        if column.name in keys and not column.same_type
    )
    if malformed and keys:
        failed = " OR ".join(filter(None, [failed, f"s.{sql.identifier(malformed)} IS NOT NULL"]))
    columns_made = [f"{value} AS {sql.identifier(name)}" for name, value in values.items()]
    listed = ", ".join([*columns_made, *([f"s.{sql.identifier(carried)}"] if carried else [])])
    row = letter if rules.checks else f"CASE WHEN {sql.size}({ERRORS}) > 0 THEN {letter} END"
    text = (
        f"SELECT {listed}, {ERRORS}, {failed or 'false'} AS {KEY_FAILED}, {row} AS {ROW} "
        f"FROM (SELECT s.*, {sql.array_of(errors)} AS {ERRORS} FROM {rows} AS s) AS s"
    )
    return _checked(sql, text, rules) if rules.checks else text


def _checked(sql: RuleDialect, text: str, rules: RowRules) -> str:
    """The converted rows, of which those without other errors have those of the constraints, too."""
    # As Delta does it: NULL is a violation.
    violated = (
        f"CASE WHEN {rules.checked_where} AND NOT coalesce(({check}), false) "
        f"THEN {sql.literal(f'it violates the constraint {name}: {check}')} END"
        for name, check in rules.checks.items()
    )
    errors = f"CASE WHEN {sql.size}({ERRORS}) > 0 THEN {ERRORS} ELSE {sql.array_of(violated)} END AS {ERRORS}"
    return (
        f"SELECT * {sql.excluding} ({ROW}), CASE WHEN {sql.size}({ERRORS}) > 0 THEN {ROW} END AS {ROW} "
        f"FROM (SELECT * {sql.excluding} ({ERRORS}), {errors} FROM ({text}))"
    )


def converted(sql: RuleDialect, column: ConvertedColumn, side: str = "s") -> str:
    """Return SQL of the value that a row of the source has in the destination; NULL if it has none there.

    `side`: the alias of the source.
    """
    value = f"{side}.{sql.identifier(column.source)}"
    if column.source_type == "string" and column.type in WHOLE_TYPES:
        value = sql.whole.format(value)
    elif column.type in WHOLE_TYPES and (column.source_type in FLOATING or DECIMAL.match(column.source_type)):
        value = sql.truncated.format(value)
    return value if column.same_type else f"try_cast({value} AS {sql_name(sql, column.type)})"


def _lost(sql: RuleDialect, column: ConvertedColumn, value: str) -> str:
    """SQL of whether the value is another one than the source's; empty where that cannot be, or is asked for."""
    source = f"s.{sql.identifier(column.source)}"
    return "" if column.cast or column.same_type else loses(sql, source, column.source_type, value, column.type)


def _is_other(sql: RuleDialect, column: ConvertedColumn, value: str) -> str:
    """SQL of whether a value of the source is none of the destination, so that a row's key would be another row's."""
    return " OR ".join(filter(None, [f"{value} IS NULL", _lost(sql, column, value)]))


def _errors(sql: RuleDialect, column: ConvertedColumn, value: str) -> list[str]:
    """Expressions, each NULL or the text of what is wrong."""
    source, name, errors = f"s.{sql.identifier(column.source)}", column.name, list[str]()
    shown = "'a value'" if column.pii else f"left(CAST({source} AS {sql_name(sql, 'string')}), {_SHOWN})"
    if not column.same_type:
        text = f"concat({sql.literal(f'column {name}: ')}, {shown}, {sql.literal(f' is not a valid {column.type}')})"
        errors.append(f"CASE WHEN {source} IS NOT NULL AND {value} IS NULL THEN {text} END")
        if lost := _lost(sql, column, value):
            reason = f" would be another value as {column.type}" if column.source_type == "string" else ""
            reason = sql.literal(reason or f" would lose digits as {column.type}")
            text = f"concat({sql.literal(f'column {name}: ')}, {shown}, {reason})"
            errors.append(f"CASE WHEN {source} IS NOT NULL AND {value} IS NOT NULL AND {lost} THEN {text} END")
    if column.length:
        text = f"concat({sql.literal(f'column {name}: ')}, {shown}, {sql.literal(f' has over {column.length} characters')})"
        errors.append(f"CASE WHEN length({value}) > {column.length} THEN {text} END")
    if not column.nullable:
        text = sql.literal(f"column {name}: it is NULL, which the table does not allow")
        errors.append(f"CASE WHEN {source} IS NULL THEN {text} END")
    dialect = IN_SPARK if sql.excluding == "EXCEPT" else IN_DUCKDB
    if column.partition and (wrong := unusable(dialect, name, column.type, value)):
        errors.append(f"CASE WHEN {wrong} IS NOT NULL THEN concat({sql.literal(f'column {name}: ')}, {wrong}) END")
    return errors

"""The rows of a sync's source as the destination takes them: converted, without those that do not fit, one for each key."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ratify_lakehouse.components.expectations.rule_dialects import SPARK, RuleDialect
from ratify_lakehouse.components.strategies.destination_changes import OPERATION, operations_in
from ratify_lakehouse.components.syncs.converted_rows import (
    ERRORS,
    KEY_FAILED,
    ROW,
    ConvertedColumn,
    RowRules,
    conversion_sql,
)
from ratify_lakehouse.components.syncs.letter_values import letter_sql
from ratify_lakehouse.components.syncs.letter_variants import LEVELS, unheld
from ratify_lakehouse.components.syncs.row_queries import RowQueries, Rows
from ratify_lakehouse.components.syncs.source_rows import SourceRows
from ratify_lakehouse.components.syncs.sync_declaration import RowErrors, SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.sync_destination import SyncDestination
from ratify_lakehouse.errors import RowsNotConverted
from ratify_lakehouse.sql.spark_sql import has_variant
from ratify_lakehouse.wording import keys_shown

_SHOWN = 3
_ROWS = "ratify_source_rows"


@dataclass(frozen=True)
class AcceptedRows:
    """Rows that fit a destination.

    Attributes:
        rows: With the destination's columns, and the operation of an event.
        read: How many rows the source has.
        failed: Those that do not fit, with `ERRORS`; None if there are none.
        failures: How many these are.
        lost: Of how many of these the keys cannot be known.
    """

    rows: Rows
    read: int
    failed: Rows | None
    failures: int
    lost: int


@dataclass(frozen=True)
class RowConversion:
    """Converts the rows of a source for a destination."""

    queries: RowQueries
    sync: SyncDeclaration
    source: SourceRows
    destination: SyncDestination
    sql: RuleDialect = SPARK

    @property
    def full_name(self) -> str:
        """The destination's name, with the catalog's."""
        return self.queries.full_name(self.destination.table)

    def accepted(self) -> AcceptedRows:
        """Read and convert the rows.

        Raises:
            RowsNotConverted: rows do not fit, and the sync does not skip them, or no dead letter can hold one of them; or
                several have the same keys.
        """
        converted = self.queries.computed(self._converted())
        read, failed, lost = self._counted(converted)
        if failed and self.sync.row_errors is RowErrors.FAIL:
            raise RowsNotConverted(self._explained(converted, failed, read))
        if failed:
            self._check_letters(converted)
        rows = self._deduplicated(self._accepted(converted, some_fail=failed > 0))
        bad = (
            self.queries.query(f"SELECT * FROM {{rows}} WHERE {self.sql.size}({ERRORS}) > 0", rows=converted)
            if failed
            else None
        )
        return AcceptedRows(rows, read, bad, failed, lost)

    def _converted(self) -> Rows:
        columns, events, sql = list(self.destination.columns), self.sync.events, self.sql
        only_where, checked = dict[str, str](), "true"
        if self.sync.history.updated_at:
            dated = self.destination.column(self.sync.history.updated_at)
            columns = [replace(column, nullable=False) if column.name == dated else column for column in columns]
        if events:
            operation = next(name for name in self.source.types if name.casefold() == events.operation.casefold())
            columns = [
                replace(column, nullable=False) if column.name.casefold() == events.sequence_by.casefold() else column
                for column in columns
            ]
            columns.append(ConvertedColumn(OPERATION, "string", operation, self.source.types[operation], nullable=False))
            given, keys = f"CAST(s.{sql.identifier(operation)} AS STRING)", self.destination.table.keys
            without_values = (*events.apply_as_deletes, *events.apply_as_truncates)
            bare, checked = (f"NOT {operations_in(without_values, each, sql)}" for each in (given, OPERATION))
            always = {*keys, OPERATION, events.sequence_by}
            only_where = {column.name: bare for column in columns if column.name not in always}
            # A truncation is of no row.
            only_where |= dict.fromkeys(keys, f"NOT {operations_in(events.apply_as_truncates, given, sql)}")
        skips = self.sync.row_errors is RowErrors.SKIP
        letter = letter_sql(self.source.letter_types, sql) if skips else "CAST(NULL AS STRING)"
        text = conversion_sql(
            *(self.sql, columns, self.destination.table.keys, _ROWS, letter, self.source.malformed),
            rules=RowRules(only_where, self.destination.checks, checked),
            carried=self.source.carried,
        )
        # The names of the source's columns may have braces, which would name a DataFrame.
        escaped = text.replace("{", "{{").replace("}", "}}").replace(_ROWS, "{rows}")
        return self.queries.query(escaped, rows=self.source.frame)

    def _counted(self, converted: Rows) -> tuple[int, int, int]:
        """How many rows there are, how many do not fit, and of how many the keys cannot be known."""
        text = (
            f"SELECT count(*) AS n, count(*) FILTER (WHERE {self.sql.size}({ERRORS}) > 0) AS failed, "
            f"count(*) FILTER (WHERE {KEY_FAILED}) AS lost FROM {{rows}}"
        )
        found = self.queries.rows(self.queries.query(text, rows=converted))[0]
        return int(found["n"]), int(found["failed"]), int(found["lost"])

    def _check_letters(self, converted: Rows) -> None:
        """Check that the dead letters have all values of their rows.

        Raises:
            RowsNotConverted: one lacks a VARIANT.
        """
        names = [name for name, type_ in self.source.letter_types.items() if has_variant(type_)]
        if not names:
            return
        text = f"SELECT count(*) AS n FROM {{rows}} WHERE {unheld(ROW)}"
        if number := self.queries.rows(self.queries.query(text, rows=converted))[0]["n"]:
            raise RowsNotConverted(
                f"{number} rows of the source of the sync {self.sync.name} do not fit {self.full_name}, and no dead "
                f"letter can hold their VARIANT ({', '.join(names)}): more than {LEVELS} objects and arrays are nested, "
                "or a value has an unknown type. Nothing was written. Let a query leave the column out, or convert it "
                "with to_json, or set `on_error: fail`."
            )

    def _explained(self, converted: Rows, failed: int, read: int) -> str:
        text = (
            f"SELECT DISTINCT {self.sql.first.format(ERRORS)} AS reason FROM {{rows}} "
            f"WHERE {self.sql.size}({ERRORS}) > 0 ORDER BY 1 LIMIT {_SHOWN}"
        )
        reasons = "; ".join(row["reason"] for row in self.queries.rows(self.queries.query(text, rows=converted)))
        return (
            f"{failed} of {read} rows of the source of the sync {self.sync.name} do not fit {self.full_name}: {reasons}. "
            "Nothing was written. Change the source, cast under `columns`, or set `on_error: skip`, which sends such "
            "rows to the dead letters."
        )

    def _accepted(self, converted: Rows, *, some_fail: bool) -> Rows:
        names = [*(column.name for column in self.destination.columns), *([OPERATION] if self.sync.events else [])]
        where = f" WHERE {self.sql.size}({ERRORS}) = 0" if some_fail else ""
        return self.queries.query(f"SELECT {self.sql.listed(names)} FROM {{rows}}{where}", rows=converted)

    def _deduplicated(self, rows: Rows) -> Rows:
        """One row for each key.

        Raises:
            RowsNotConverted: there are several.
        """
        sync, events = self.sync, self.sync.events
        keys = [key for key in self.destination.table.keys if key in {column.name for column in self.destination.columns}]
        if not sync.strategy.keyed:
            return rows
        if events:
            # The same event may come twice; two events with one sequence cannot be ordered.
            keys = [*keys, self.destination.column(events.sequence_by)]
            rows = self.queries.query("SELECT DISTINCT * FROM {rows}", rows=rows)
        elif sync.strategy is SyncStrategy.SCD2 and sync.history.updated_at:
            keys = [*keys, self.destination.column(sync.history.updated_at)]
            rows = self.queries.query("SELECT DISTINCT * FROM {rows}", rows=rows)
        elif sync.latest:
            quoted, columns = self.sql.identifier, map(self.destination.column, sync.latest)
            latest = ", ".join(f"{quoted(name)} DESC NULLS LAST" for name in columns)
            rows = self.queries.query(
                f"SELECT DISTINCT * {self.sql.excluding} (ratify_place) FROM (SELECT *, "
                f"rank() OVER (PARTITION BY {self.sql.listed(keys)} ORDER BY {latest}) AS ratify_place FROM {{rows}}) "
                "WHERE ratify_place = 1",
                rows=rows,
            )
        truncates = events and operations_in(events.apply_as_truncates, OPERATION, self.sql)
        keyed = self.queries.query(f"SELECT * FROM {{rows}} WHERE NOT {truncates}", rows=rows) if truncates else rows
        self._check_keys(keyed, keys)
        return rows

    def _check_keys(self, rows: Rows, keys: Sequence[str]) -> None:
        listed = self.sql.listed(keys)
        text = f"SELECT {listed}, count(*) AS ratify_rows FROM {{rows}} GROUP BY {listed} HAVING count(*) > 1 LIMIT {_SHOWN}"
        found = self.queries.rows(self.queries.query(text, rows=rows))
        if not found:
            return
        hidden = {column.name for column in self.destination.columns if column.pii}
        shown = keys_shown(found, keys, hidden)
        advice = (
            "An event needs a sequence of its own for each row."
            if self.sync.events
            else "Name under `unique: {latest: …}` the columns in which the row to take is greatest, or more `keys`."
        )
        raise RowsNotConverted(
            f"Several rows of the source of the sync {self.sync.name} have the same {', '.join(keys)}: {shown}. "
            f"Nothing was written. {advice}"
        )

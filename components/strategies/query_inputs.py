"""The inputs of a query that a table is made of, at the versions at which a pass reads them, and what changed in them."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from itertools import takewhile
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from components.checks.acknowledged_commits import acknowledged_versions
from components.landing_order import LANDING, landed_rows
from components.query_engines import has_versions
from components.strategies.added_rows import AddedRange, added_range, compared_sql, feed_sql
from components.strategies.pass_scope import is_far_behind
from ingest.file_source import LOAD_COLUMNS
from ingest.ledger.file_ledger import LANDED_FILES
from resources.declarations import records_changes
from resources.delta.commit_history import COLUMNS_MOVED, Commit
from resources.delta.computed_inputs import ComputedInputs, FullRecompute, InputVersion
from resources.delta.feed_parts import partitions_known_since
from resources.delta.table_log import TableLog
from resources.errors import CommitConflict, HistoryNotContinued, LogUnreadable
from resources.spark.change_feed import unless_replaced
from resources.spark.spark_engine import Spark
from resources.spark.spark_errors import first_line
from resources.sql.query_parts import reads_all_columns
from resources.sql.spark_sql import at_version, comparable, identifier, literal, table_name
from resources.sql.table_query import TableName, TableQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOADED = {column.name for column in LOAD_COLUMNS}
# Of a view, a table that another catalog manages, or the ledger where the landing order is not read.
_NO_VERSION = -1
_LANDED_AGAIN = Path(__file__).with_name("landed_again.sql")
_MOST_FILES = 1_000
_WORD = re.compile(r"\w+")


@dataclass
class QueryInputs:
    """The inputs of a query, at the versions that a pass reads.

    Attributes:
        columns: Of each input, as the query may name them: with the landing order, if it reads that.
    """

    spark: Spark
    query: TableQuery
    columns: dict[TableName, Sequence[str]] = field(default_factory=dict[TableName, Sequence[str]])
    _versions: dict[TableName, InputVersion] = field(default_factory=dict[TableName, InputVersion])
    _types: dict[TableName, Mapping[str, str]] = field(default_factory=dict[TableName, Mapping[str, str]])
    _logs: dict[TableName, TableLog | None] = field(default_factory=dict[TableName, "TableLog | None"])

    @property
    def versions(self) -> dict[str, InputVersion]:
        """By full name."""
        return {self.full_name(name): version for name, version in self._versions.items()}

    def full_name(self, name: TableName) -> str:
        """With the catalog's name."""
        return name.full_name(self.spark.catalog.connection.name)

    def relation(self, name: TableName, columns: Sequence[str]) -> str:
        """Return what stands for an input in the query's text. At first its latest version becomes the one that is read."""
        if name not in self.columns:
            self._find(name, columns)
        if self._versions[name].ledger == _NO_VERSION:
            return self._at(name)
        return f"(\n{landed_rows(self.spark, self.full_name(name), *self._read(name))}\n)"

    def _find(self, name: TableName, columns: Sequence[str]) -> None:
        full_name, landed = self.full_name(name), LANDING in self.query.text and _LOADED.issubset(columns)
        for other in self._versions:
            if self.full_name(other).casefold() == full_name.casefold():
                # Named in two ways, it is read at one version.
                self.columns[name], self._versions[name] = self.columns[other], self._versions[other]
                return
        table = self.spark.catalog.table(full_name)
        version = self.spark.catalog.version(full_name) if has_versions(table) else _NO_VERSION
        # After the input's: an entry is never older than the rows that it is about.
        ledger = self.spark.catalog.version(self._ledger) if landed else _NO_VERSION
        self.columns[name] = [*columns, LANDING] if landed else list(columns)
        self._types[name] = {column.name or "": column.type_text or "" for column in table.columns or []}
        self._versions[name] = InputVersion(table.table_id or "", version, ledger)

    @property
    def types_named(self) -> list[tuple[str, str, str]]:
        """The types of the inputs' columns that the query reads: one that is wider may give other values of old rows.

        Where it reads all by `*`, they are in their order, which gives it other values, too.
        """
        types = [(str(name), column, type_) for name, found in self._types.items() for column, type_ in found.items()]
        if reads_all_columns(self.query):
            return types
        words = set(_WORD.findall(self.query.text.casefold()))
        return sorted(each for each in types if words.issuperset(_WORD.findall(each[1].casefold())))

    @property
    def _ledger(self) -> str:
        return self.spark.full_name(LANDED_FILES)

    def _read(self, name: TableName) -> tuple[int | None, int | None]:
        """The versions of an input and of the ledger; None is the latest."""
        found = self._versions[name]
        version, ledger = (None if each == _NO_VERSION else each for each in (found.version, found.ledger))
        return version, ledger

    def _at(self, name: TableName, version: int | None = None) -> str:
        """The rows of an input at a version, by default at the one that is read."""
        return at_version(table_name(self.full_name(name)), self._read(name)[0] if version is None else version)

    def check(self, last: ComputedInputs) -> None:
        """Check that the inputs are tables that have versions, and the same ones as before.

        Raises:
            FullRecompute: they are not.
        """
        for name, now in self._versions.items():
            if now.version == _NO_VERSION:
                raise FullRecompute(
                    f"{name} is not a managed table, so that it is not known whether it has changed", lasting=True
                )
            since = last.inputs.get(self.full_name(name))
            if since is None or since.table_id != now.table_id or since.version > now.version:
                raise FullRecompute(f"{name} is another table than before")

    def check_replaced(self) -> None:
        """Check that the inputs still are the tables of which the versions are read.

        Raises:
            CommitConflict: one was dropped and created again.
            TableMissing: one does not exist any more.
        """
        for name, read in self._versions.items():
            if read.version != _NO_VERSION and self.spark.catalog.table(self.full_name(name)).table_id != read.table_id:
                raise CommitConflict(f"{name} was dropped and created again while it was read.")

    def create_views(self, last: ComputedInputs) -> dict[TableName, str]:
        """Define a view of the changed rows of each input that has some, and return these views.

        Raises:
            FullRecompute: an input has no versions, or what has changed in it cannot be known.
        """
        self.check(last)
        numbered = enumerate(self.query.inputs)
        return {name: _changed(number) for number, name in numbered if self._create_changed_view(number, name, last)}

    def with_every(self, changed: Mapping[TableName, str]) -> str:
        """Return the WITH clause of all rows of each input, as they were and as they are, as `affected_keys` reads them.

        Args:
            changed: The views of changed rows.
        """
        texts = list[str]()
        for number, name in enumerate(self.query.inputs):
            text = f"SELECT {self._listed(name)} FROM {self._at(name)}"
            if name in changed:
                text += f" UNION ALL SELECT {self._listed(name)} FROM {changed[name]}"
            texts.append(f"ratify_every_{number} AS ({text})")
        return f"WITH {', '.join(texts)}"

    def added(self, name: TableName, columns: Sequence[str], since: InputVersion | None) -> str:
        """Return what stands for the rows of an input that it got after a version; as `relation`, which gives all of them.

        Raises:
            HistoryNotContinued: as `added_range`, or the rows cannot be read.
        """
        every, found = self.relation(name, columns), self.added_range(name, since)
        if not found.adds:
            return f"(SELECT {self._listed(name)} FROM {every} WHERE false)"
        view, table = f"ratify_added_{self.query.inputs.index(name)}", self._table_columns(name)
        feed, types = self._feed(name, found.since), self._types_of(name)
        # Where Spark compares no versions, the feed is all that there is.
        if all(map(comparable, types.values())):
            feed = f"(SELECT * FROM {feed}{unless_replaced(types)})"
        try:
            self._first_readable(
                name,
                found.since,
                lambda: feed_sql(found, table, feed),
                lambda: compared_sql(found, table, lambda version: self._as_of(name, version)),
            ).createOrReplaceTempView(view)
        except FullRecompute as reason:
            raise HistoryNotContinued(f"{reason}.") from reason
        return f"(SELECT * FROM {view})"

    def added_range(self, name: TableName, since: InputVersion | None) -> AddedRange:
        """Return what an input, whose `relation` is known, did since a version.

        Raises:
            HistoryNotContinued: it has no versions, is another table than before, or `added_range`.
        """
        now = self._versions[name]
        if now.version == _NO_VERSION:
            raise HistoryNotContinued(f"{name} is not a managed table, so that it is not known which of its rows are new.")
        if since is None or since.table_id != now.table_id or since.version > now.version:
            raise HistoryNotContinued(f"{name} is another table than the one that rows were appended from before.")
        full_name = self.full_name(name)
        try:
            rewrites = self._rewrites(name, since.version)
        except LogUnreadable as error:
            raise HistoryNotContinued(str(error)) from error
        return added_range(
            full_name, since.version, now.version, rewrites, lambda: acknowledged_versions(self.spark, full_name)
        )

    def far_behind(self, name: TableName, since: int) -> bool:
        """Return whether an input has versions after one that are to be recorded as read though they gave no row."""
        return is_far_behind(self._log(name), since + 1, self._versions[name].version)

    def _log(self, name: TableName) -> TableLog | None:
        """The log of an input whose version is known; it is read once, and may have newer versions."""
        if name not in self._logs:
            self._logs[name] = TableLog.opened(self.spark.catalog, self.full_name(name))
        return self._logs[name]

    def _rewrites(self, name: TableName, since: int) -> list[Commit]:
        """The versions since one, up to that which is read, that did other than add rows."""
        now, full_name = self._versions[name].version, self.full_name(name)
        if since == now:
            return []
        if log := self._log(name):
            return list(log.rewrites(since, now))
        commits = [commit for commit in self.spark.history(full_name) if since < commit.version <= now]
        return [commit for commit in reversed(commits) if not commit.only_adds_rows]

    def _table_columns(self, name: TableName) -> list[str]:
        return [column for column in self.columns[name] if column != LANDING]

    def _listed(self, name: TableName) -> str:
        return ", ".join(map(identifier, self._table_columns(name)))

    def _create_changed_view(self, number: int, name: TableName, last: ComputedInputs) -> bool:
        """Compute an input's rows that have changed since the last time, as they were and as they are, as a view."""
        now, since = self._versions[name], last.inputs[self.full_name(name)]
        if now == since:
            return False
        rows = [self._changed_rows(name, since.version)] if since.version < now.version else []
        if since.ledger != now.ledger and (paths := self._landed_again(name, since)):
            files = ", ".join(map(literal, paths))
            text = f"SELECT {self._listed(name)} FROM {self._at(name)} WHERE _source_file IN ({files})"
            rows.append(self.spark.computed(self.spark.sql(text)))
        if not rows:
            return False
        reduce(lambda one, other: one.unionAll(other), rows).createOrReplaceTempView(_changed(number))
        return True

    def _changed_rows(self, name: TableName, since: int) -> "DataFrame":
        """The rows that another version has, as they were and as they are.

        Raises:
            FullRecompute: they cannot be read.
        """

        def compared() -> str:
            before, after = self._as_of(name, since), f"SELECT {self._listed(name)} FROM {self._at(name)}"
            return f"({before} EXCEPT ALL {after}) UNION ALL ({after} EXCEPT ALL {before})"

        in_feed = f"SELECT {self._listed(name)} FROM {self._feed(name, since)}{unless_replaced(self._types_of(name))}"
        return self._first_readable(name, since, lambda: in_feed, compared)

    def _first_readable(
        self, name: TableName, since: int, in_feed: Callable[[], str], compared: Callable[[], str]
    ) -> "DataFrame":
        """The rows of a query over an input's feed, if it has one, or of one that compares its versions.

        Raises:
            FullRecompute: neither can be read.
        """
        from pyspark.errors import PySparkException

        properties = self.spark.catalog.table(self.full_name(name)).properties or {}
        by_feed = [in_feed] if records_changes(properties) and self._feed_has_values(name, since) else []
        reason = ""
        for query in (*by_feed, compared):
            try:
                return self.spark.computed(self.spark.query(query()))
            except PySparkException as error:
                # The feed may be younger than the changes, and a version may be cleaned up.
                reason = first_line(str(error))
        raise FullRecompute(f"what changed in {name} since version {since} cannot be read: {reason}")

    def _feed_has_values(self, name: TableName, since: int) -> bool:
        """Whether the feed has the values of all columns of an input.

        It lacks them where its partitions were others before, or a column may have the name that another one had.
        """
        now, log = self._versions[name].version, self._log(name)
        history = log.commits() if log else self.spark.history(self.full_name(name))
        commits = [each for each in takewhile(lambda each: each.version > since, history) if each.version <= now]
        if any(commit.operation in {"RESTORE", *COLUMNS_MOVED} for commit in commits):
            return False
        if log is None:
            return not any(commit.may_divide for commit in commits)
        with suppress(LogUnreadable):
            return partitions_known_since(log, since + 1, now) == since + 1
        return False

    def _feed(self, name: TableName, since: int) -> str:
        table, now = table_name(self.full_name(name)), self._versions[name].version
        return f"table_changes({literal(table)}, {since + 1}, {now})"

    def _types_of(self, name: TableName) -> Mapping[str, str]:
        """The types of an input's columns, however the query names it."""
        full_name = self.full_name(name).casefold()
        return next(found for other, found in self._types.items() if self.full_name(other).casefold() == full_name)

    def _as_of(self, name: TableName, version: int) -> str:
        """The query for an input's rows at a version. Columns that it did not have yet were NULL."""
        found = {column.lower() for column in self.spark.sql(f"SELECT * FROM {self._at(name, version)}").columns}
        listed = self._table_columns(name)
        had = (identifier(each) if each.lower() in found else f"NULL AS {identifier(each)}" for each in listed)
        return f"SELECT {', '.join(had)} FROM {self._at(name, version)}"

    def _landed_again(self, name: TableName, since: InputVersion) -> list[str]:
        """The files of an input whose rows it had before, and whose place in the landing order has changed since."""
        log = TableLog.opened(self.spark.catalog, self._ledger)
        if since.ledger == _NO_VERSION or log is None or not log.only_appended(since.ledger):
            raise FullRecompute(f"it is not known whether files of {name} landed again, whose order the query reads")
        text = Template(_LANDED_AGAIN.read_text()).substitute(
            ledger=at_version(table_name(self._ledger), self._versions[name].ledger),
            table_id=literal(since.table_id),
            since=since.ledger,
            version=since.version,
            most=_MOST_FILES + 1,
        )
        paths = [row["path"] for row in self.spark.rows(self.spark.query(text))]
        if len(paths) > _MOST_FILES:
            raise FullRecompute(f"more than {_MOST_FILES} files of {name} landed again, whose order the query reads")
        return paths


def _changed(number: int) -> str:
    """The name of the view of an input's changed rows."""
    return f"ratify_changed_{number}"

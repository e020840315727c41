"""The inputs of a query that a table is made of, at the versions at which a pass reads them, and what changed in them."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import reduce
from itertools import takewhile
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from ratify_lakehouse.components.checks.acknowledged_commits import acknowledged_versions
from ratify_lakehouse.components.expectations.rule_dialects import SPARK
from ratify_lakehouse.components.landing_order import landed_rows
from ratify_lakehouse.components.strategies.added_rows import compared_sql, feed_sql
from ratify_lakehouse.components.strategies.input_versions import NO_VERSION, InputVersions
from ratify_lakehouse.declarations import records_changes
from ratify_lakehouse.delta.commit_history import COLUMNS_MOVED, Commit
from ratify_lakehouse.delta.computed_inputs import ComputedInputs, FullRecompute, InputVersion
from ratify_lakehouse.delta.feed_parts import partitions_known_since
from ratify_lakehouse.delta.snapshot import LiveFile
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.spark.change_feed import unless_replaced
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.spark_errors import first_line
from ratify_lakehouse.errors import HistoryNotContinued, LogUnreadable
from ratify_lakehouse.ingest.ledger.file_ledger import Status
from ratify_lakehouse.sql.spark_sql import at_version, comparable, identifier, literal, table_name
from ratify_lakehouse.sql.table_query import TableName, TableQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LANDED_AGAIN = Path(__file__).with_name("landed_again.sql")
_MOST_FILES = 1_000


class QueryInputs(InputVersions):
    """The inputs of a query, as Spark reads them at these versions."""

    def __init__(self, spark: Spark, query: TableQuery) -> None:
        super().__init__(spark.catalog, query, SPARK)
        self.spark = spark
        self._logs = dict[TableName, TableLog | None]()

    def relation(self, name: TableName, columns: Sequence[str]) -> str:
        """See `InputVersions`."""
        self.find(name, columns)
        if self._versions[name].ledger == NO_VERSION:
            return self._at(name)
        return f"(\n{landed_rows(self.spark, self.full_name(name), *self._read(name))}\n)"

    def every(self, name: TableName) -> str:
        """See `InputVersions`."""
        return self._at(name)

    def _read(self, name: TableName) -> tuple[int | None, int | None]:
        """The versions of an input and of the ledger; None is the latest."""
        found = self._versions[name]
        version, ledger = (None if each == NO_VERSION else each for each in (found.version, found.ledger))
        return version, ledger

    def _at(self, name: TableName, version: int | None = None) -> str:
        """The rows of an input at a version, by default at the one that is read."""
        return at_version(table_name(self.full_name(name)), self._read(name)[0] if version is None else version)

    def added(self, name: TableName, columns: Sequence[str], since: InputVersion | None) -> str:
        """See `InputVersions`."""
        every, found = self.relation(name, columns), self.added_range(name, since)
        if not found.adds:
            return f"(SELECT {self.listed(name)} FROM {every} WHERE false)"
        view, table = f"ratify_added_{self.query.inputs.index(name)}", self.table_columns(name)
        feed, types = self._feed(name, found.since), self.types_of(name)
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

    def log(self, name: TableName) -> TableLog | None:
        """See `InputVersions`. It is read once."""
        if name not in self._logs:
            self._logs[name] = TableLog.opened(self.spark.catalog, self.full_name(name))
        return self._logs[name]

    def rewrites(self, name: TableName, since: int) -> list[Commit]:
        """See `InputVersions`."""
        now = self._versions[name].version
        if log := self.log(name):
            return list(log.rewrites(since, now))
        commits = [commit for commit in self.spark.history(self.full_name(name)) if since < commit.version <= now]
        return [commit for commit in reversed(commits) if not commit.only_adds_rows]

    def acknowledged(self, name: TableName) -> set[int]:
        """See `InputVersions`."""
        return acknowledged_versions(self.spark, self.full_name(name))

    def create_changed_view(self, view: str, name: TableName, last: ComputedInputs) -> bool:
        """See `InputVersions`."""
        now, since = self._versions[name], last.inputs[self.full_name(name)]
        if now == since:
            return False
        rows = [self._changed_rows(name, since.version)] if since.version < now.version else []
        if since.ledger != now.ledger and (paths := self._landed_again(name, since)):
            files = ", ".join(map(literal, paths))
            text = f"SELECT {self.listed(name)} FROM {self._at(name)} WHERE _source_file IN ({files})"
            rows.append(self.spark.computed(self.spark.query(text), now=False))
        if not rows:
            return False
        reduce(lambda one, other: one.unionAll(other), rows).createOrReplaceTempView(view)
        return True

    def _changed_rows(self, name: TableName, since: int) -> "DataFrame":
        """The rows that another version has, as they were and as they are.

        Raises:
            FullRecompute: they cannot be read.
        """

        def compared() -> str:
            before, after = self._as_of(name, since), f"SELECT {self.listed(name)} FROM {self._at(name)}"
            return f"({before} EXCEPT ALL {after}) UNION ALL ({after} EXCEPT ALL {before})"

        in_feed = f"SELECT {self.listed(name)} FROM {self._feed(name, since)}{unless_replaced(self.types_of(name))}"
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
        now, log = self._versions[name].version, self.log(name)
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

    def _as_of(self, name: TableName, version: int) -> str:
        """The query for an input's rows at a version. Columns that it did not have yet were NULL."""
        found = {column.lower() for column in self.spark.sql(f"SELECT * FROM {self._at(name, version)}").columns}
        listed = self.table_columns(name)
        had = (identifier(each) if each.lower() in found else f"NULL AS {identifier(each)}" for each in listed)
        return f"SELECT {', '.join(had)} FROM {self._at(name, version)}"

    def _landed_again(self, name: TableName, since: InputVersion) -> list[str]:
        """The files of an input whose rows it had before, and whose place in the landing order has changed since."""
        log = TableLog.opened(self.spark.catalog, self.ledger)
        entries = log.appended(since.ledger) if log and since.ledger != NO_VERSION else None
        if entries is None:
            raise FullRecompute(f"it is unknown whether files of {name} landed again, whose order the query reads")
        if not any(_may_place(file, since) for file in entries):
            return []
        text = Template(_LANDED_AGAIN.read_text()).substitute(
            ledger=at_version(table_name(self.ledger), self._versions[name].ledger),
            table_id=literal(since.table_id),
            since=since.ledger,
            version=since.version,
            most=_MOST_FILES + 1,
        )
        paths = [row["path"] for row in self.spark.rows(self.spark.query(text))]
        if len(paths) > _MOST_FILES:
            raise FullRecompute(f"more than {_MOST_FILES} files of {name} landed again, whose order the query reads")
        return paths


def _may_place(entries: LiveFile, since: InputVersion) -> bool:
    """Return whether an entry of a file of the ledger may give rows that a table had then another ingest order.

    Those cannot that are about other tables, or say what was loaded later or refused; most files have no others, as their
    statistics tell.
    """
    least, most = entries.stats.get("minValues", {}), entries.stats.get("maxValues", {})
    # Of a long text a bound may have the beginning alone.
    first, last = least.get("table_id", ""), most.get("table_id", since.table_id)
    if not first <= since.table_id or since.table_id[: len(last)] > last:
        return False
    return least.get("version", NO_VERSION) <= since.version or most.get("status", Status.WITHDRAWN) >= Status.REPEATED

"""The inputs of a query that a table is made of, at the versions at which a pass reads them, and what changed in them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from components.landing_order import LANDING
from ingest.file_source import LOAD_COLUMNS
from ingest.ledger.file_ledger import LANDED_FILES, Status
from resources.declarations import CHANGE_DATA_FEED
from resources.delta.computed_inputs import ComputedInputs, FullRecompute, InputVersion
from resources.spark.spark_engine import Spark
from resources.sql.spark_sql import identifier, literal, table_name
from resources.sql.table_query import TableName, TableQuery

_LOADED = {column.name for column in LOAD_COLUMNS}
# Of a view, or a table that another catalog manages.
_NO_VERSION = -1


@dataclass
class QueryInputs:
    """The inputs of a query, at the versions that a pass reads."""

    spark: Spark
    query: TableQuery
    columns: dict[TableName, Sequence[str]] = field(default_factory=dict[TableName, Sequence[str]])
    _landed: dict[TableName, str] = field(default_factory=dict[TableName, str])
    _versions: dict[TableName, InputVersion] = field(default_factory=dict[TableName, InputVersion])

    @property
    def versions(self) -> dict[str, InputVersion]:
        """By full name."""
        return {self.full_name(name): version for name, version in self._versions.items()}

    def changed_since(self, last: ComputedInputs) -> list[TableName]:
        """Return the inputs of which another version is read than the last time.

        Raises:
            FullRecompute: one has no versions.
        """
        for name, version in self._versions.items():
            if version.version == _NO_VERSION:
                raise FullRecompute(f"{name} is not a managed table, so that it is not known whether it has changed")
        return [name for name in self._versions if last.inputs.get(self.full_name(name)) != self._versions[name]]

    def full_name(self, name: TableName) -> str:
        """With the catalog's name."""
        return name.full_name(self.spark.catalog.connection.name)

    def has_order(self, columns: Sequence[str]) -> bool:
        """Whether the query reads the landing order of an input with these columns."""
        return LANDING in self.query.text and _LOADED.issubset(columns)

    def found(self, name: TableName, columns: Sequence[str], landed: str) -> None:
        """Note an input's columns, and its latest version as the one to read.

        `landed` is the query for its rows with the landing order, if that is read.
        """
        if name in self.columns:
            return
        full_name = self.full_name(name)
        table = self.spark.catalog.table(full_name)
        table_id, managed = table.table_id or "", table.table_type is not None and table.table_type.value == "MANAGED"
        version = self.spark.catalog.version(full_name) if managed else _NO_VERSION
        landings = self._landings(table_id) if landed else 0
        self.columns[name] = [*columns, LANDING] if landed else list(columns)
        self._landed[name] = landed
        self._versions[name] = InputVersion(table_id, version, landings)

    def _landings(self, table_id: str) -> int:
        repeated = f"table_id = {literal(table_id)} AND status = {literal(Status.REPEATED.value)}"
        counted = self.spark.sql(f"SELECT count(*) AS n FROM {self.spark.sql_name(LANDED_FILES)} WHERE {repeated}")
        return int(self.spark.rows(counted)[0]["n"])

    def at(self, name: TableName, version: int | None = None) -> str:
        """The table at a version, by default at the one that is read."""
        chosen = self._versions[name].version if version is None else version
        named = table_name(self.full_name(name))
        return named if chosen == _NO_VERSION else f"{named} VERSION AS OF {chosen}"

    def create_changed_view(self, number: int, name: TableName, last: ComputedInputs) -> None:
        """Compute an input's rows that have changed since the last time, as they were and as they are, as a view.

        Raises:
            FullRecompute: they cannot be known.
        """
        from pyspark.errors import PySparkException

        now, since = self._versions[name], last.inputs.get(self.full_name(name))
        if since is None or since.table_id != now.table_id or since.version > now.version:
            raise FullRecompute(f"{name} is another table than before")
        if self._landed[name]:
            raise FullRecompute(f"files of {name} landed, whose order the query reads")
        listed = ", ".join(map(identifier, self.columns[name]))
        before, after = (f"SELECT {listed} FROM {self.at(name, version)}" for version in (since.version, now.version))
        compared = f"({before} EXCEPT ALL {after}) UNION ALL ({after} EXCEPT ALL {before})"
        properties = self.spark.catalog.table(self.full_name(name)).properties or {}
        feed = f"table_changes({literal(table_name(self.full_name(name)))}, {since.version + 1}, {now.version})"
        texts = [f"SELECT {listed} FROM {feed}"] if properties.get(CHANGE_DATA_FEED) == "true" else []
        reason = ""
        for text in [*texts, compared]:
            try:
                rows = self.spark.computed(self.spark.sql(text))
            except PySparkException as error:
                # The feed may be younger than the changes, and a version may be cleaned up.
                reason = str(error).strip().splitlines()[0][:200]
            else:
                rows.createOrReplaceTempView(f"ratify_changed_{number}")
                return
        raise FullRecompute(f"what changed in {name} since version {since.version} cannot be read: {reason}")

    def create_every_view(self, number: int, name: TableName, *, changed: bool) -> None:
        """Define the view of all rows that an input has, or had before the changes."""
        listed = ", ".join(map(identifier, self.columns[name]))
        text = f"SELECT {listed} FROM {self._landed[name] or self.at(name)}"
        if changed:
            text += f" UNION ALL SELECT {listed} FROM ratify_changed_{number}"
        self.spark.sql(text).createOrReplaceTempView(f"ratify_every_{number}")

"""Tables in Python: their rows as Arrow, Polars, pandas and DuckDB have them, and appends by the writer's protocol.

`ratify_lakehouse.table` opens one. Nothing here reads a log or commits: this puts together what the engine has for that.
"""

# pyright: basic
# Arrow and pandas ship no types.

import datetime as dt
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.managed_creation import create_table, creates
from ratify_lakehouse.delta.schema_change import columns_of
from ratify_lakehouse.delta.table_features import refuse_unsupported_features
from ratify_lakehouse.delta.table_version import version_at, version_of_load
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.engines.duckdb.duckdb_errors import translating
from ratify_lakehouse.engines.duckdb.feed_reading import read_changes_since
from ratify_lakehouse.engines.duckdb.given_rows import Appendable, columns_of_rows, needed, registered
from ratify_lakehouse.engines.duckdb.polars_scan import BATCH_ROWS, lazy_frame
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.engines.duckdb.table_overwrite import overwrite_to_match
from ratify_lakehouse.engines.duckdb.table_snapshots import rows_at, share_temporary_tables
from ratify_lakehouse.errors import AlreadyLoaded, TableMissing, UnsafeTable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

_NEW = "ratify_new_rows"


def table(
    name: str,
    *,
    version: int | None = None,
    timestamp: dt.datetime | str | None = None,
    catalog: UnityCatalog | None = None,
) -> "PythonTable":
    """Return a table of the catalog. It is looked up when its rows are first asked for.

    Args:
        name: As schema.table, of the project's catalog, or as catalog.schema.table.
        version: Read this version; by default the latest.
        timestamp: Read the version that the table had at this time: a datetime, or its text in ISO 8601, with a time zone.
        catalog: The catalog; by default the one of the environment, or else of the running stack.

    Raises:
        ValueError: both a version and a time are given, or the time has no time zone.
        TableMissing: the name has not two or three parts.
        NotConfigured: no catalog is named anywhere.
    """
    if version is not None and timestamp is not None:
        raise ValueError("version and timestamp are given: a table is read at one of them")
    time = dt.datetime.fromisoformat(timestamp) if isinstance(timestamp, str) else timestamp
    if time is not None and time.tzinfo is None:
        raise ValueError(f"timestamp {timestamp} has no time zone: add one, as 2026-01-31T12:00:00+00:00")
    parts = name.split(".")
    if not (2 <= len(parts) <= 3 and all(parts)):
        raise TableMissing(f"{name!r} is not the name of a table: write schema.table, or catalog.schema.table.")
    if len(parts) == 3:
        catalog = (catalog or UnityCatalog()).model_copy(update={"name": parts[0]})
    return PythonTable(catalog or UnityCatalog(), ".".join(parts[-2:]), version, time)


class TableRows:
    """Rows of a table, read by each call that returns some. A relation and a LazyFrame stay at the version of that call."""

    def __init__(self, opened: "Callable[[], tuple[DuckDBPyConnection, str]]") -> None:
        """`opened`: returns a connection of its own, and the query for the rows, for any of its cursors."""
        self._opened = opened

    def duckdb(self) -> "DuckDBPyRelation":
        """Return the rows as a relation of DuckDB, on a connection of its own, whose time zone is UTC.

        Nothing is read before it is executed. Its filters and columns decide which files, and which parts of them, are read.

        Raises:
            TableMissing: there is no such table.
            CatalogDenied: the principal may not read it.
            VersionMissing: the table does not have the version, or its files are gone.
            UnsafeTable: the table, at that version, has a feature that is not supported here.
            ChangesNotRecorded: of changes, that the table does not have them.
            CatalogUnavailable, StorageUnavailable, LogUnreadable.
        """
        con, query = self._opened()
        with translating("read a table"):
            return con.sql(query)

    def arrow(self) -> "pa.Table":
        """Return all rows as a table of Arrow.

        Raises:
            As `duckdb`.
        """
        needed("pyarrow")
        relation = self.duckdb()
        with translating("read a table"):
            return relation.to_arrow_table()

    def to_batches(self, rows: int = BATCH_ROWS) -> "pa.RecordBatchReader":
        """Return a reader of the rows as record batches of Arrow, which are read one after the other.

        Args:
            rows: How many a batch has at most.

        Raises:
            As `duckdb`.
        """
        needed("pyarrow")
        relation = self.duckdb()
        with translating("read a table"):
            return relation.to_arrow_reader(rows)

    def polars(self) -> "pl.LazyFrame":
        """Return the rows as a LazyFrame of Polars, which reads the columns and rows that its query needs.

        Raises:
            As `duckdb`.
        """
        needed("polars", "pyarrow")
        con, query = self._opened()
        with translating("read a table"):
            return lazy_frame(con, query)

    def pandas(self) -> "pd.DataFrame":
        """Return all rows as a DataFrame of pandas, where NULL is NaN, NaT or None, as the types of NumPy have it.

        Raises:
            As `duckdb`.
        """
        needed("pandas")
        relation = self.duckdb()
        with translating("read a table"):
            return relation.df()


class PythonTable(TableRows):
    """A managed table of the catalog, at one of its versions, or at the latest of each moment."""

    def __init__(
        self, catalog: UnityCatalog, name: str, version: int | None = None, time: dt.datetime | None = None
    ) -> None:
        """Take the schema.table, and the version or the time, with a time zone; see `table`."""
        super().__init__(self._open)
        self.name = name
        self._catalog, self._version, self._time = catalog, version, time

    @property
    def full_name(self) -> str:
        """The table as catalog.schema.table."""
        return f"{self._catalog.connection.name}.{self.name}"

    @property
    def version(self) -> int:
        """The version that is read: the one asked for, that of the time asked for, or the latest at this moment.

        Raises:
            VersionMissing: the table had none at that time.
            TableMissing, CatalogDenied, CatalogUnavailable, StorageUnavailable, LogUnreadable.
        """
        if self._version is not None:
            return self._version
        if self._time is None:
            return self._catalog.version(self.full_name)
        log = self._engine().log(self.full_name)
        return version_at(log, log.refresh(), self._time)

    def changes(self, since: int, until: int | None = None) -> TableRows:
        """Return the rows that the versions after one changed, from the change data feed, with the columns of today.

        Three more columns are Delta's: `_change_type` (insert, delete, update_preimage, update_postimage), `_commit_version`
        and `_commit_timestamp`. There are no rows if `since` is the latest version.

        Args:
            since: The version that the reader has.
            until: The last version to read; by default the latest.
        """

        def opened() -> "tuple[DuckDBPyConnection, str]":
            session = self._session()
            found = read_changes_since(session, session.engine.log(self.full_name), since, until)
            query = f"FROM {found.alias}"
            share_temporary_tables(session)
            return session.con, query

        return TableRows(opened)

    def append(self, data: Appendable, *, load_id: str) -> int:
        """Append rows in one version, once for each load id, and return the version that has them.

        A load id that the table has already is an append that was made before, maybe by a process that died: nothing is
        written, and the version of then is returned.

        Args:
            data: The rows, with exactly the table's columns, in any order. The type of a number may be narrower than the
                table's.
            load_id: Names these rows, and no others that are ever appended to the table.

        Raises:
            AppendFailed: the rows do not fit the table: the message names the column, its type and the type that is given.
            UnsafeTable: the table has a feature that is not supported here.
            CatalogDenied: the principal may not write to it.
            CommitConflict, CatalogBusy: nothing was committed; make the same append again.
            CommitOutcomeUnknown, CatalogUnavailable: it may be committed; make the same append again.
            TableMissing, StorageUnavailable, LogUnreadable.
        """
        if not load_id:
            raise ValueError("append needs a load id: without it, a lost reply could double the rows")
        with self._writing(data) as (session, declaration, query):
            try:
                return session.append(declaration, query, [load_id]).version
            except AlreadyLoaded:
                return version_of_load(session.log(declaration), load_id)

    def overwrite(self, data: Appendable) -> int:
        """Make the table equal to rows, in one version, and return it; where it is equal, the version that it has.

        Args:
            data: All of its rows from now on; see `append`.

        Raises:
            As `append`; the same call may be made again after each error that is transient.
            UnsafeTable: the table only allows appends, or records its changes.
        """
        with self._writing(data) as (session, declaration, query):
            session.con.execute(f"CREATE TEMP VIEW {_NEW} AS {query}")
            return overwrite_to_match(session, declaration, _NEW).version

    def create(self, data: Appendable) -> bool:
        """Create the table, with the columns of rows and none of these rows; return whether it was missing. Its schema, too.

        Raises:
            AppendFailed: a column has a type that no column of a table has.
            UnsafeDeclaration: a column or the table has a name that not every engine can read.
            UnsafeTable: the catalog does not create tables for clients: declare it, or create it in Spark.
            CatalogDenied, CatalogUnavailable, StorageUnavailable.
        """
        with suppress(TableMissing):
            self._catalog.table(self.full_name)
            return False
        declaration = _declared(self.full_name, columns_of_rows(self.full_name, data))
        if not creates(self._catalog, declaration):
            raise UnsafeTable(
                f"The catalog creates no tables for clients, so {self.full_name} is missing: create it in Spark."
            )
        self._catalog.ensure_schemas((declaration.layer,))
        return create_table(self._catalog, declaration)

    @contextmanager
    def _writing(self, data: Appendable) -> "Generator[tuple[DuckDBSession, TableDeclaration, str]]":
        """Yield a session, the table as it is, and a query of the session for the rows, which fit the table."""
        engine = self._engine()
        try:
            snapshot = engine.log(self.full_name).refresh()
            refuse_unsupported_features(snapshot)
            with engine.session() as session:
                query = registered(session.con, snapshot, data)
                yield session, _declared(self.full_name, columns_of(snapshot)), query
        finally:
            engine.close()

    def _open(self) -> "tuple[DuckDBPyConnection, str]":
        session = self._session()
        if self._version is None and self._time is None:
            # Says more clearly than DuckDB that there is none, or that the principal may not read it.
            self._catalog.table(self.full_name)
            session.attach()
            query = f"FROM {attached(self.name)}"
            session.readable.check(query)
            return session.con, query
        log = session.engine.log(self.full_name)
        latest = log.refresh()
        version = version_at(log, latest, self._time) if self._time else self._version
        return session.con, rows_at(session, log, latest, latest.version if version is None else version)

    def _session(self) -> DuckDBSession:
        """A session of an engine of its own, which its connection keeps: another session could attach the catalog again."""
        return self._engine().opened()

    def _engine(self) -> DuckDB:
        return DuckDB(catalog=self._catalog)


def _declared(full_name: str, columns: Sequence[Column]) -> TableDeclaration:
    """A declaration of a table, for who writes to it here."""
    catalog, schema, name = full_name.split(".")
    return TableDeclaration(
        layer=schema,
        name=name,
        columns=tuple(columns),
        comment="",
        writer=Engine.DUCKDB,
        operations=frozenset({"WRITE"}),
        catalog=catalog,
    )

"""The component `Sync`: rows of a source that are written into a table of the catalog, which others may write to as well."""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Literal

import dagster as dg
from pydantic import BaseModel, Field

from ratify_lakehouse.components.declaration_places import in_field, named_table
from ratify_lakehouse.components.declared_component import DeclaredComponent
from ratify_lakehouse.components.declared_history import FollowedHistory
from ratify_lakehouse.components.personal_columns import MarkedTable
from ratify_lakehouse.components.query_component import UniqueRow, read_query
from ratify_lakehouse.components.syncs.sync_assets import sync_definitions
from ratify_lakehouse.components.syncs.sync_attributes import check_columns, check_source
from ratify_lakehouse.components.syncs.sync_declaration import (
    ChangeEvents,
    DeletionGuards,
    HistoryRules,
    MappedColumn,
    RowErrors,
    SyncDeclaration,
    SyncEngine,
    SyncSource,
    SyncStrategy,
    whole_table,
)
from ratify_lakehouse.components.syncs.sync_import import LEGACY
from ratify_lakehouse.declarations import IDENTIFIER, Column, check_type
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.sql.table_query import TableQuery

_FORMATS = {".csv": "csv", ".parquet": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


class SyncFrom(dg.Model, dg.Resolvable):
    """Where the rows come from: one of `table`, `sql` and `file`."""

    table: str = Field(default="", description="A table of the catalog, as schema.table")
    sql: str = Field(default="", description="File of a query, beside defs.yaml, that names tables with their schemas")
    engine: Literal["spark", "duckdb"] = Field(
        default="spark", description="The engine that runs the query, which is in its SQL"
    )
    file: str = Field(
        default="",
        description="Path or URL of a CSV file with a header, a Parquet file, or one of JSON lines; * matches several",
    )
    format: Literal["", "csv", "parquet", "json"] = Field(
        default="", description="Format of the file; by default from its name"
    )


class SyncTo(dg.Model, dg.Resolvable):
    """The table that the rows are written to."""

    table: str = Field(description="The table, as schema.table, or catalog.schema.table for one of another catalog")
    create_if_missing: bool = Field(default=False, description="Create it, with the source's columns, if it is missing")


class SyncedColumn(dg.Model, dg.Resolvable):
    """A column of the destination that has another name or type than in the source."""

    name: str = Field(description="Its name in the destination")
    source: str = Field(default="", description="Its name in the source; by default the same")
    cast: str = Field(
        default="",
        description="Type that values are cast to, even if digits are lost; by default the destination's, and a value "
        "that does not fit is an error",
    )
    pii: bool | None = Field(
        default=None, description="Personal data, left out of messages and samples; by default as the source's column"
    )


class SyncDeletes(dg.Model, dg.Resolvable):
    """Which rows a mirror may delete."""

    empty_source: bool = Field(
        default=False, description="Let a source without rows delete everything; by default that is an error"
    )
    max_fraction: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Largest share of the table's rows that one run may delete; more is an error",
    )
    scope: list[str] = Field(
        default=[],
        description="Columns of the destination: delete only rows whose values in these columns occur in the source",
    )
    tracked: bool = Field(default=False, description="Delete only rows that the sync itself has written")


class SyncEvents(dg.Model, dg.Resolvable):
    """How a row of the source is an event of change."""

    operation: str = Field(description="Column of the source with the operation; it is not in the destination")
    sequence_by: str = Field(description="Column that orders the events; it is also in the destination")
    apply_as_deletes: list[str] = Field(
        default=["d", "delete", "DELETE"], description="Operations that delete the row of their keys"
    )
    apply_as_truncates: list[str] = Field(
        default=["t", "truncate", "TRUNCATE"],
        description="Operations that delete all rows with a lower `sequence_by`",
    )


class SyncParameters(BaseModel):
    """Options of `dg scaffold defs ratify_lakehouse.Sync`."""

    source: str = Field(description="Table that the rows come from, such as gold.orders")
    destination: str = Field(description="Table that they are written to, such as crm.orders")
    key: str = Field(description="Column that identifies a row; more of them are added to defs.yaml")
    description: str = Field(default="Rows of the table, for its readers", description="What a row is")


class SyncScaffolder(dg.Scaffolder[SyncParameters]):
    """Writes the `defs.yaml` of a sync."""

    @classmethod
    def get_scaffold_params(cls) -> type[SyncParameters]:
        """Return the command's options."""
        return SyncParameters

    def scaffold(self, request: dg.ScaffoldRequest[SyncParameters]) -> None:
        """Write it."""
        given = request.params
        attributes = {
            "description": given.description,
            "source": {"table": given.source},
            "destination": {"table": given.destination, "create_if_missing": True},
            "strategy": "merge",
            "keys": [given.key],
        }
        dg.scaffold_component(request, attributes)


@dg.scaffold_with(SyncScaffolder)
class Sync(DeclaredComponent):
    """Writes the rows of a source into a table, in one commit; other programs may write to the table, too.

    Its folder is `syncs/<name>`.
    """

    description: str = Field(description="What a row is; also the comment of a table that the sync creates")
    source: SyncFrom = Field(description="Where the rows come from")
    destination: SyncTo = Field(description="Where they are written to")
    strategy: Literal["append", "merge", "mirror", "full", "scd2", "cdc"] = Field(
        description="append inserts the rows once; merge updates and inserts by the keys; mirror also deletes rows that "
        "the source lacks; full overwrites all rows; scd2 keeps earlier versions of rows; cdc applies change events"
    )
    keys: list[str] = Field(default=[], description="Columns of the destination that identify a row")
    on_error: Literal["fail", "skip"] = Field(
        default="fail",
        description="What happens to rows that do not fit the table: fail writes nothing; skip sends them to the dead "
        "letters",
    )
    columns: list[SyncedColumn] = Field(
        default=[],
        description="Columns with another name or type than in the source; the others are written as they are",
    )
    only_columns: bool = Field(default=False, description="Write only `columns`")
    unique: UniqueRow | None = Field(
        default=None,
        description="Which of several rows with the same keys is written, by columns of the destination; by default they "
        "are an error",
    )
    engine: Literal["spark", "duckdb", "warehouse"] = Field(
        default="spark",
        description="The engine: Spark; DuckDB, which is faster if the rows fit on this machine; or the SQL warehouse in "
        "UNITY_WAREHOUSE_ID, which can also write to hive_metastore. A warehouse does not support the strategies scd2 "
        "and cdc, `on_error: skip` and `tracked`",
    )
    batch: int = Field(default=1000, ge=1, description="Rows of one statement that sends rows to a warehouse")
    delete: SyncDeletes = Field(default=SyncDeletes(), description="For the strategy mirror: which rows it may delete")
    events: SyncEvents | None = Field(default=None, description="For the strategy cdc: which columns make a row an event")
    history: FollowedHistory = Field(
        default=FollowedHistory(), description="For the strategy scd2: what starts and ends a version"
    )
    schedule: str = Field(
        default="",
        description="Cron schedule, in RATIFY_TIME_ZONE; by default it runs whenever the source has a new version",
    )
    external: bool = Field(default=False, description="The source's tables are made outside the project")

    @cached_property
    def sync(self) -> SyncDeclaration:
        """The sync.

        Raises:
            UnsafeDeclaration: the attributes contradict each other.
        """
        declared = SyncDeclaration(
            name=self.folder.name,
            source=self._source(),
            destination=named_table(self.destination.table, "destination", "table", catalogs=True),
            strategy=SyncStrategy(self.strategy),
            keys=tuple(self.keys),
            comment=self.description,
            owner=self.owner,
            create_if_missing=self.destination.create_if_missing,
            row_errors=RowErrors(self.on_error),
            engine=SyncEngine(self.engine),
            batch=self.batch,
            columns=self._columns(),
            only_mapped=self.only_columns,
            latest=tuple(self.unique.latest) if self.unique else (),
            guards=DeletionGuards(
                self.delete.empty_source, self.delete.max_fraction, tuple(self.delete.scope), self.delete.tracked
            ),
            events=self.events
            and ChangeEvents(
                self.events.operation,
                self.events.sequence_by,
                tuple(self.events.apply_as_deletes),
                tuple(self.events.apply_as_truncates),
            ),
            history=HistoryRules(self.history.updated_at, tuple(self.history.ignore), self.history.invalidate_hard_deletes),
            personal=self.personal,
        )
        self._check(declared)
        return declared

    def marked_tables(self) -> Iterable[MarkedTable]:
        """See `DeclaredComponent`: the destination."""
        sync, marks = self.sync, [Column(column.name, "", pii=column.pii) for column in self.columns]
        named = {column.name: column.source for column in sync.columns}
        personal = [column.name for column in marks if column.pii]
        yield MarkedTable(str(sync.destination), marks, personal, sync.source.query, named)

    def declared_defs(self) -> dg.Definitions:
        """See `DeclaredComponent`."""
        return sync_definitions(self.sync, tags=self.tags, schedule=self.schedule)

    def _check(self, sync: SyncDeclaration) -> None:
        if not IDENTIFIER.fullmatch(sync.name):
            raise UnsafeDeclaration(
                f"{sync.name!r}, the name of its folder, is not a plain identifier: letters, digits and _."
            )
        self._check_keys(sync)
        self._check_strategy(sync.strategy)
        self._check_engine(sync)
        check_columns(sync)
        if self.schedule:
            _check_cron(self.schedule)

    def _check_keys(self, sync: SyncDeclaration) -> None:
        strategy = sync.strategy
        if strategy.keyed and not sync.keys:
            raise UnsafeDeclaration(f"the strategy {strategy} finds rows by their keys: name at least one column.", "keys")
        if not strategy.keyed and sync.keys:
            raise UnsafeDeclaration(f"the strategy {strategy} does not find rows by keys: remove it, or use merge.", "keys")
        if doubled := [key for key in sync.keys if [each.casefold() for each in sync.keys].count(key.casefold()) > 1]:
            raise UnsafeDeclaration(f"{doubled[0]!r} is named twice.", "keys")

    def _check_strategy(self, strategy: SyncStrategy) -> None:
        if strategy is SyncStrategy.CDC and self.events is None:
            raise UnsafeDeclaration("the strategy cdc needs to know which columns make a row an event.", "events")
        for field, given, strategies in (
            ("events", self.events is not None, {SyncStrategy.CDC}),
            ("delete", self.delete != SyncDeletes(), {SyncStrategy.MIRROR}),
            ("history", self.history != FollowedHistory(), {SyncStrategy.SCD2}),
            ("unique", self.unique is not None, {SyncStrategy.MERGE, SyncStrategy.MIRROR}),
        ):
            if given and strategy not in strategies:
                raise UnsafeDeclaration(f"only the strategy {' or '.join(sorted(strategies))} has it: remove it.", field)

    def _check_engine(self, sync: SyncDeclaration) -> None:
        legacy = sync.destination.catalog.casefold() == LEGACY
        by_warehouse = sync.engine is SyncEngine.WAREHOUSE
        if not by_warehouse and legacy:
            raise UnsafeDeclaration(
                f"{sync.destination} is a table of the legacy metastore, whose commits no catalog ratifies: set "
                "`engine: warehouse`, or upgrade it to Unity Catalog (SYNC TABLE).",
                *("destination", "table"),
            )
        if not by_warehouse and "batch" in self.model_fields_set:
            raise UnsafeDeclaration("only the engine warehouse has it: remove it.", "batch")
        if sync.engine is SyncEngine.SPARK:
            return
        lacking = (SyncStrategy.SCD2, SyncStrategy.CDC)
        for place, given, reason in (
            (("strategy",), sync.strategy in lacking, f"no strategy {sync.strategy}"),
            (("delete",), sync.guards.tracked, "no `tracked`"),
            (("on_error",), sync.row_errors is RowErrors.SKIP, "no dead letters"),
        ):
            if given and by_warehouse:
                raise UnsafeDeclaration(f"the engine warehouse has {reason}: use `engine: spark` or duckdb.", *place)
        query = sync.source.query
        if not by_warehouse and self.source.sql and query and query.dialect != "duckdb":
            raise UnsafeDeclaration(
                "the engine duckdb runs queries in its own SQL: set `engine: duckdb`.", "source", "engine"
            )
        if legacy and sync.create_if_missing:
            raise UnsafeDeclaration(
                f"{sync.destination} is a table of the legacy metastore, where a sync creates none: create it, and take "
                "this out.",
                *("destination", "create_if_missing"),
            )

    def _source(self) -> SyncSource:
        given = self.source
        named = [field for field in ("table", "sql", "file") if getattr(given, field)]
        if len(named) != 1:
            raise UnsafeDeclaration("give one of table, sql and file.", "source")
        check_source(named[0], engine=given.engine, format_=given.format)
        if given.file:
            found = given.format or _FORMATS.get(Path(given.file).suffix.lower(), "")
            if not found:
                raise UnsafeDeclaration(
                    f"{given.file!r} does not tell its format: add `format: csv`, parquet or json.", "source", "file"
                )
            return SyncSource(files=given.file, format=found)
        if given.table:
            name = named_table(given.table, "source", "table", catalogs=True)
            return SyncSource(TableQuery.parsed(whole_table(name), "databricks", "source.table"))
        dialect = "duckdb" if given.engine == "duckdb" else "databricks"
        return SyncSource(read_query(self.folder / given.sql, dialect, "source", "sql"))

    def _columns(self) -> tuple[MappedColumn, ...]:
        made = list[MappedColumn]()
        for number, column in enumerate(self.columns):
            with in_field("columns", number):
                if not IDENTIFIER.fullmatch(column.name):
                    raise UnsafeDeclaration(f"{column.name!r} is not a plain identifier: letters, digits and _.", "name")
                if column.cast:
                    with in_field("cast"):
                        check_type(column.name, column.cast)
                made.append(MappedColumn(column.name, column.source or column.name, column.cast, column.pii))
        return tuple(made)


def _check_cron(text: str) -> None:
    try:
        dg.ScheduleDefinition("schedule", target="*", cron_schedule=text)
    except dg.DagsterInvalidDefinitionError as error:
        raise UnsafeDeclaration(f"{text!r} is not a cron expression, such as '0 6 * * *'.", "schedule") from error

"""The tables of a package of folders: each is declared in a `defs.yaml` that names a component, or is an asset in Python."""

import importlib
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import dagster as dg

from ratify_lakehouse.components.checks.upkeep_check import upkeep_check
from ratify_lakehouse.components.declaration_places import located, named_table, not_made
from ratify_lakehouse.components.declared_component import DeclaredComponent
from ratify_lakehouse.components.declared_history import check_lists
from ratify_lakehouse.components.feeds.feed_component import FeedComponent
from ratify_lakehouse.components.feeds.topic_feed_component import TopicFeed
from ratify_lakehouse.components.flink.flink_table import FlinkTable
from ratify_lakehouse.components.flink_sql_component import FlinkSql
from ratify_lakehouse.components.kafka_events_component import KafkaEvents
from ratify_lakehouse.components.landed_files_component import LandedFiles
from ratify_lakehouse.components.personal_columns import MarkedTable, PersonalColumns
from ratify_lakehouse.components.query_component import QueryComponent
from ratify_lakehouse.components.shared_assets import shared_definitions
from ratify_lakehouse.components.sql_table_component import SqlTable
from ratify_lakehouse.components.stream.event_stream import EventStream
from ratify_lakehouse.components.stream.record_table import RecordTable
from ratify_lakehouse.components.stream.stream_ledger import STREAM_BATCHES
from ratify_lakehouse.components.stream_table_component import StreamTable
from ratify_lakehouse.components.sync_component import Sync
from ratify_lakehouse.components.syncs.dead_letters import DEAD_LETTERS
from ratify_lakehouse.components.syncs.sync_assets import GROUP
from ratify_lakehouse.components.syncs.sync_conflicts import check_writers
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.components.table_component import MaintainedTable, TableComponent
from ratify_lakehouse.components.table_policies import without_condition
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.maintenance_need import TableMaintenance
from ratify_lakehouse.errors import InvalidDeclaration, UnsafeDeclaration
from ratify_lakehouse.ingest.file_source import SchemaMode, Source
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from ratify_lakehouse.settings import catalog_name
from ratify_lakehouse.sql.table_query import TableName

C = TypeVar("C", bound=dg.Component)


class DeclaredTables:
    """What is defined in the folders of a package: the tables of every `defs.yaml`, and all that Python modules define."""

    def __init__(self, package: ModuleType) -> None:
        """Look at a package, which has a folder for each schema."""
        self._package = package.__name__
        self._folder = Path(next(iter(package.__path__)))

    @cached_property
    def definitions(self) -> dg.Definitions:
        """Assets and checks, and all else that the modules define.

        Raises:
            As `with_conditions`.
        """
        # First, for its errors name the file and the line.
        found = self.with_conditions
        if not self.partitioned:
            return found
        # What is in preview warns in the name of who calls it.
        with warnings.catch_warnings(action="ignore", category=dg.PreviewWarning):
            return found.map_asset_specs(func=without_condition(self.partitioned))

    @cached_property
    def with_conditions(self) -> dg.Definitions:
        """The definitions, where the assets that are asked for as a whole have their condition (see `without_condition`).

        Raises:
            InvalidDeclaration: a declaration is in no folder of its own in one of its schema, or names a table that another
                declares.
            ComponentTreeException: a declaration is wrong; its cause has the file, the line and the field.
        """
        for table in self._all(DeclaredComponent):
            if table.folder.parent.parent != self._folder:
                place = table.folder.relative_to(self._folder.parent)
                wanted = f"{self._folder.name}/<schema>/<table>/defs.yaml"
                raise InvalidDeclaration(f"{place}/defs.yaml: a table is declared in {wanted}; move it there.")
        for sync in self._all(Sync):
            if sync.folder.parent != self._folder / GROUP:
                place, wanted = sync.folder.relative_to(self._folder.parent), f"{self._folder.name}/{GROUP}/<name>/defs.yaml"
                raise InvalidDeclaration(f"{place}/defs.yaml: a sync is declared in {wanted}; move it there.")
        folded = Counter(name.casefold() for name in self.components)
        if doubled := [name for name in self.components if folded[name.casefold()] > 1]:
            raise InvalidDeclaration(f"{' and '.join(doubled)} are one table: names ignore case. Rename one of the folders.")
        for category in (dg.BetaWarning, dg.PreviewWarning):
            # Dagster warns of what its own loader uses, for each definition.
            warnings.filterwarnings("ignore", category=category, module=r"dagster\.")
        built = [tree.build_defs(tree.defs_module_path) for tree in self._trees]
        read = [topic for table in self.flink_tables for topic in table.topic_names]
        return dg.Definitions.merge(
            *built,
            shared_definitions(self.sources, self.record_tables, self.streams, self.topics, read),
            dg.Definitions(asset_checks=[upkeep_check(table) for table in self.maintained.values()]),
        )

    @cached_property
    def components(self) -> Mapping[str, TableComponent]:
        """The tables that are declared in YAML, by `schema.table`."""
        return {f"{table.folder.parent.name}.{table.folder.name}": table for table in self._all(TableComponent)}

    def check_inputs(self) -> None:
        """Check that every input of a query is an asset of the project, of another catalog, or named as external.

        Raises:
            InvalidDeclaration: one is not; the error names the file and the line of the query. Or rows are to be reconciled
                by a column that the input does not have.
        """
        catalog = catalog_name()
        external_assets = [asset.key for asset in self.definitions.assets or () if isinstance(asset, dg.AssetSpec)]
        tables = [key.path for key in (*external_assets, *self.keys) if len(key.path) == 3]
        known = {".".join(path).casefold(): ".".join(path[path[0] == catalog :]) for path in tables}
        records = {table.declaration.table_name.casefold(): table.declaration.table_name for table in self.record_tables}
        for table in self._all(StreamTable):
            for name in table.query.inputs:
                if str(name).casefold() not in records:
                    hint = "A stream reads a table of the kind KafkaEvents."
                    raise InvalidDeclaration(_unknown(table, name, records.values(), hint))
        for table in self._all(FeedComponent):
            table.check_followed(known.values(), self.components)
        for table in self._all(SqlTable):
            external = {name.casefold() for name in table.external}
            with located(table.folder / "defs.yaml"):
                for number, name in enumerate(table.external):
                    named_table(name, "external", number)
            for name in table.query.inputs:
                declared = known.get(name.full_name(catalog).casefold())
                if declared and name.full_name(catalog) not in (declared, f"{catalog}.{declared}"):
                    # The key of the asset, by which Dagster knows that this table is made of it, has that case.
                    raise InvalidDeclaration(f"{_place(table, name)}: the table {name} is {declared}: write it that way.")
                of_project = declared or str(name).casefold() in external
                if not of_project and name.catalog in ("", catalog):
                    hint = "Name a table of other programs under `external`."
                    raise InvalidDeclaration(_unknown(table, name, known.values(), hint))
            with located(table.folder / "defs.yaml"):
                check_lists(table.followed, self.sources, table.external)
            self._check_reconciled(table)
        self._check_syncs(known)

    def _check_syncs(self, known: Mapping[str, str]) -> None:
        catalog = catalog_name()
        for sync in self._all(Sync):
            query = sync.sync.source.query
            for name in query.inputs if query and not sync.external else ():
                if name.catalog in ("", catalog) and name.full_name(catalog).casefold() not in known:
                    with located(sync.folder / "defs.yaml"):
                        raise UnsafeDeclaration(not_made(str(name), known.values()), "source")
        check_writers([(sync.folder, sync.sync) for sync in self._all(Sync)], known)

    @cached_property
    def syncs(self) -> Mapping[str, Sync]:
        """The syncs, by their names."""
        return {sync.folder.name: sync for sync in self._all(Sync)}

    @property
    def topic_feeds(self) -> Sequence[TopicFeed]:
        """The topics with the changes of a table."""
        return self._all(TopicFeed)

    @cached_property
    def topics(self) -> Collection[str]:
        """The topics that changes of tables, and the positions of these, are published to.

        Raises:
            InvalidDeclaration: two declarations name one topic.
        """
        found = dict[str, TopicFeed]()
        for each in self.topic_feeds:
            for topic in (each.topic, each.published.offsets_topic):
                if other := found.get(topic):
                    with located(each.folder / "defs.yaml"):
                        raise UnsafeDeclaration(f"{other.folder.name} publishes to {topic}: choose another topic.", "topic")
                found[topic] = each
        return found

    @cached_property
    def sources(self) -> Sequence[Source]:
        """Their kinds of landed files."""
        return [component.source for component in self._all(LandedFiles)]

    @cached_property
    def record_tables(self) -> Sequence[RecordTable]:
        """Their tables of records."""
        return [component.table for component in self._all(KafkaEvents)]

    @cached_property
    def streams(self) -> Sequence[EventStream]:
        """Their streams from a table of records into another table."""
        return [component.stream for component in self._all(StreamTable)]

    @cached_property
    def declarations(self) -> Mapping[dg.AssetKey, TableDeclaration]:
        """The tables that are declared in YAML, with their quarantines, by their keys."""
        written = (table for component in self.components.values() for table in component.written)
        return {asset_key(table): table for table in written}

    @cached_property
    def maintained(self) -> Mapping[dg.AssetKey, MaintainedTable]:
        """The tables that are declared in YAML, with their quarantines and the ledgers, by their keys."""
        tables = [table for component in self.components.values() for table in component.maintained]
        ledgers = [*([LANDED_FILES] if self.sources else []), *([STREAM_BATCHES] if self.streams else [])]
        tables += [MaintainedTable(ledger, TableMaintenance()) for ledger in ledgers]
        readers = self._readers
        keys = {asset_key(table.declaration): table for table in tables}
        return {key: replace(table, readers=tuple(readers.get(key, ()))) for key, table in keys.items()}

    @property
    def _readers(self) -> Mapping[dg.AssetKey, Sequence[TableDeclaration]]:
        """The tables that are computed from another one and may say so in their commits, by the key of that."""
        catalog, found = catalog_name(), dict[dg.AssetKey, list[TableDeclaration]]()
        feeds = [feed for feed in self._all(FeedComponent) if isinstance(feed, TableComponent)]
        read = [(feed, [feed.followed]) for feed in feeds] + [(table, table.query.inputs) for table in self.sql_tables]
        for table, inputs in read:
            for name in inputs:
                found.setdefault(dg.AssetKey(name.key_path(catalog)), []).extend(table.written)
        return found

    def followers(self, table: str) -> Sequence[DeclaredComponent]:
        """Return what reads a table, given as schema.table: tables of queries, streams, feeds and syncs."""
        catalog = catalog_name()
        wanted = f"{catalog}.{table}".casefold()
        read = [(each, each.query.inputs) for each in (*self.sql_tables, *self._all(StreamTable))]
        read += [(each, [each.followed]) for each in self._all(FeedComponent)]
        read += [(each, each.sync.source.query.inputs) for each in self._all(Sync) if each.sync.source.query]
        return [each for each, inputs in read if wanted in (name.full_name(catalog).casefold() for name in inputs)]

    def written_by(self, table: str) -> tuple[TableComponent, TableDeclaration] | None:
        """Return the component that writes a table, given as schema.table, and how it declares it; None if none does."""
        found = ((component, each) for component in self.components.values() for each in component.written)
        return next((pair for pair in found if pair[1].table_name.casefold() == table.casefold()), None)

    @cached_property
    def sql_tables(self) -> Sequence[SqlTable]:
        """The tables of a query."""
        return self._all(SqlTable)

    @cached_property
    def partitioned(self) -> Sequence[dg.AssetKey]:
        """The tables with partitions."""
        return [asset_key(table.table.declaration) for table in self.sql_tables if table.partitioned]

    @cached_property
    def flink_tables(self) -> Sequence[FlinkTable]:
        """The tables that jobs of Flink write."""
        return [each.table for each in self._all(FlinkSql)]

    @cached_property
    def from_kafka(self) -> Sequence[dg.AssetKey]:
        """The tables of records and those that jobs of Flink write, and then all that depend on them."""
        return self.with_dependents(asset_key(table.declaration) for table in (*self.record_tables, *self.flink_tables))

    def with_dependents(self, keys: Iterable[dg.AssetKey]) -> Sequence[dg.AssetKey]:
        """Return tables, and then all that depend on them."""
        waiting = list(keys)
        deps = {key: {dep.asset_key for dep in spec.deps} for key, spec in self._specs().items()}
        found = list[dg.AssetKey]()
        while waiting:
            found += waiting
            waiting = [key for key, inputs in deps.items() if key not in found and inputs.intersection(found)]
        return found

    def _specs(self) -> Mapping[dg.AssetKey, dg.AssetSpec]:
        assets = (asset for asset in self.definitions.assets or () if isinstance(asset, dg.AssetsDefinition))
        return {spec.key: spec for asset in assets for spec in asset.specs}

    @cached_property
    def keys(self) -> Sequence[dg.AssetKey]:
        """The keys of the assets that are materialized."""
        return list(self._specs())

    @cached_property
    def checks(self) -> Sequence[dg.AssetCheckKey]:
        """The checks, but for expectations, which run with their tables."""
        checks = (check for check in self.definitions.asset_checks or () if isinstance(check, dg.AssetsDefinition))
        return [key for check in checks for key in check.check_keys]

    @cached_property
    def _trees(self) -> Sequence[dg.ComponentTree]:
        """One for each folder: a tree of the whole package would import the folders that define nothing."""
        # A folder may be newer than what Python's finders remember.
        importlib.invalidate_caches()
        trees = [
            dg.ComponentTree.from_module(importlib.import_module(f"{self._package}.{folder.name}"), self._folder.parent)
            for folder in sorted(self._folder.iterdir())
            if folder.is_dir() and _has_definitions(folder)
        ]
        for component in (each for tree in trees for each in tree.get_all_components(of_type=DeclaredComponent)):
            component.place_among(self.personal)
        return trees

    @cached_property
    def personal(self) -> PersonalColumns:
        """Which columns of these tables have personal data."""
        return PersonalColumns(self._marked)

    def _marked(self) -> Iterable[MarkedTable]:
        yield MarkedTable(DEAD_LETTERS.table_name, DEAD_LETTERS.columns, DEAD_LETTERS.personal)
        for component in self._all(DeclaredComponent):
            with located(component.folder / "defs.yaml"):
                yield from component.marked_tables()

    def _all(self, kind: type[C]) -> list[C]:
        return [component for tree in self._trees for component in tree.get_all_components(of_type=kind)]

    def _check_reconciled(self, table: SqlTable) -> None:
        """Only what is declared is known here: inferred columns are those of the first file."""
        columns = {
            source.table_name.casefold(): source.table.column_names
            for source in self.sources
            if source.schema is SchemaMode.DECLARED
        }
        if table.reconcile and (given := columns.get(table.reconcile.input.casefold())):
            for field in ("row_id", "key"):
                for number, name in enumerate(getattr(table.reconcile, field)):
                    if name not in given:
                        with located(table.folder / "defs.yaml"):
                            text = f"{name!r} is not a column of {table.reconcile.input}, which has {', '.join(given)}."
                            raise UnsafeDeclaration(text, "reconcile", field, number)


def _has_definitions(folder: Path) -> bool:
    """Whether there are declarations or modules in it; a tree of nothing is an error to Dagster."""
    return not folder.name.startswith((".", "__")) and any(
        any(folder.rglob(pattern)) for pattern in ("defs.yaml", "defs.yml", "*.py")
    )


def _unknown(table: QueryComponent, name: TableName, known: Collection[str], hint: str) -> str:
    return f"{_place(table, name)}: {not_made(str(name), known, hint)}"


def _place(table: QueryComponent, name: TableName) -> str:
    return f"{'/'.join(table.query_file.parts[-3:])}, line {table.query.line_of(name)}"

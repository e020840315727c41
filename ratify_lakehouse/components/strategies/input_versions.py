"""The inputs of a query that a table is made of, and the versions at which a pass reads them."""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.expectations.rule_dialects import RuleDialect
from ratify_lakehouse.components.landing_order import LANDING
from ratify_lakehouse.components.query_engines import has_versions
from ratify_lakehouse.components.strategies.added_rows import AddedRange, added_range
from ratify_lakehouse.components.strategies.pass_scope import is_far_behind
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.delta.computed_inputs import ComputedInputs, FullRecompute, InputVersion
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.errors import CommitConflict, HistoryNotContinued, LogUnreadable
from ratify_lakehouse.ingest.file_source import LOAD_COLUMNS
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from ratify_lakehouse.sql.query_parts import reads_all_columns
from ratify_lakehouse.sql.table_query import TableName, TableQuery

_LOADED = {column.name for column in LOAD_COLUMNS}
NO_VERSION = -1
"""Of a view, a table that another catalog manages, or the ledger where the landing order is not read."""

_WORD = re.compile(r"\w+")


class InputVersions(ABC):
    """The inputs of a query, each at the version that it had when it was first asked for.

    Attributes:
        columns: Of each input, as the query may name them: with the landing order, if it reads that.
    """

    def __init__(self, catalog: UnityCatalog, query: TableQuery, dialect: RuleDialect) -> None:
        self.catalog, self.query, self._dialect = catalog, query, dialect
        self.columns = dict[TableName, Sequence[str]]()
        self._versions = dict[TableName, InputVersion]()
        self._types = dict[TableName, Mapping[str, str]]()

    @property
    def versions(self) -> dict[str, InputVersion]:
        """By full name."""
        return {self.full_name(name): version for name, version in self._versions.items()}

    def full_name(self, name: TableName) -> str:
        """With the catalog's name."""
        return name.full_name(self.catalog.connection.name)

    @property
    def ledger(self) -> str:
        """The full name of the ledger of landed files."""
        return LANDED_FILES.full_name(self.catalog.connection.name)

    def find(self, name: TableName, columns: Sequence[str]) -> None:
        """Note the latest version of an input, which has these columns, as the one that is read; unless one is noted."""
        if name in self.columns:
            return
        full_name, landed = self.full_name(name), LANDING in self.query.text and _LOADED.issubset(columns)
        for other in self._versions:
            if self.full_name(other).casefold() == full_name.casefold():
                # Named in two ways, it is read at one version.
                self.columns[name], self._versions[name] = self.columns[other], self._versions[other]
                return
        table = self.catalog.table(full_name)
        version = self.catalog.version(full_name) if has_versions(table) else NO_VERSION
        # After the input's: an entry is never older than the rows that it is about.
        ledger = self.catalog.version(self.ledger) if landed else NO_VERSION
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

    def types_of(self, name: TableName) -> Mapping[str, str]:
        """Return the types of an input's columns, however the query names it."""
        full_name = self.full_name(name).casefold()
        return next(found for other, found in self._types.items() if self.full_name(other).casefold() == full_name)

    def table_columns(self, name: TableName) -> list[str]:
        """Return the columns that an input has, without the landing order."""
        return [column for column in self.columns[name] if column != LANDING]

    def check(self, last: ComputedInputs) -> None:
        """Check that the inputs are tables that have versions, and the same ones as before.

        Raises:
            FullRecompute: they are not.
        """
        for name, now in self._versions.items():
            if now.version == NO_VERSION:
                raise FullRecompute(f"{name} is not a managed table, so it is unknown whether it has changed", lasting=True)
            since = last.inputs.get(self.full_name(name))
            if since is None or since.table_id != now.table_id or since.version > now.version:
                raise FullRecompute(f"{name} was dropped and created again since")

    def check_replaced(self) -> None:
        """Check that the inputs still are the tables of which the versions are read.

        Raises:
            CommitConflict: one was dropped and created again.
            TableMissing: one does not exist any more.
        """
        for name, read in self._versions.items():
            if read.version != NO_VERSION and self.catalog.table(self.full_name(name)).table_id != read.table_id:
                raise CommitConflict(f"{name} was dropped and created again while it was read.")

    def create_views(self, last: ComputedInputs) -> dict[TableName, str]:
        """Define a view of the changed rows of each input that has some, and return these views.

        Raises:
            FullRecompute: an input has no versions, or what has changed in it cannot be known.
        """
        self.check(last)
        numbered = enumerate(self.query.inputs)
        found = ((name, f"ratify_changed_{number}") for number, name in numbered)
        return {name: view for name, view in found if self.create_changed_view(view, name, last)}

    @abstractmethod
    def create_changed_view(self, view: str, name: TableName, last: ComputedInputs) -> bool:
        """Compute an input's rows that have changed since the last time, as they were and as they are, as a view.

        Returns:
            Whether its version, or its landing order, is another one. Otherwise there is no view.

        Raises:
            FullRecompute: they cannot be known.
        """

    @abstractmethod
    def relation(self, name: TableName, columns: Sequence[str]) -> str:
        """Return what stands for an input in the query's text. At first its latest version becomes the one that is read."""

    @abstractmethod
    def added(self, name: TableName, columns: Sequence[str], since: InputVersion | None) -> str:
        """Return what stands for the rows of an input that it got after a version; as `relation`, which gives all of them.

        Raises:
            HistoryNotContinued: as `added_range`, or the rows cannot be read.
        """

    @abstractmethod
    def log(self, name: TableName) -> TableLog | None:
        """Return the log of an input whose version is known, if it can be read here; it may have newer versions."""

    @abstractmethod
    def rewrites(self, name: TableName, since: int) -> Iterable[Commit]:
        """Return the commits since a version, up to that which is read, that did other than add rows; oldest first."""

    @abstractmethod
    def acknowledged(self, name: TableName) -> Collection[int]:
        """Return the versions of an input that were acknowledged after they were made."""

    def added_range(self, name: TableName, since: InputVersion | None) -> AddedRange:
        """Return what an input, whose `relation` is known, did since a version.

        Raises:
            HistoryNotContinued: it has no versions, is another table than before, or `added_range`.
        """
        now = self._versions[name]
        if now.version == NO_VERSION:
            raise HistoryNotContinued(f"{name} is not a managed table, so it is unknown which of its rows are new.")
        if since is None or since.table_id != now.table_id or since.version > now.version:
            raise HistoryNotContinued(f"{name} was dropped and created again since rows were appended from it.")
        try:
            rewrites = self.rewrites(name, since.version) if since.version < now.version else ()
        except LogUnreadable as error:
            raise HistoryNotContinued(str(error)) from error
        return added_range(self.full_name(name), since.version, now.version, rewrites, lambda: self.acknowledged(name))

    def far_behind(self, name: TableName, since: int) -> bool:
        """Return whether an input has versions after one that are to be recorded as read though they gave no row."""
        return is_far_behind(self.log(name), since + 1, self._versions[name].version)

    @abstractmethod
    def every(self, name: TableName) -> str:
        """Return what stands for all rows of an input at its version."""

    def listed(self, name: TableName) -> str:
        """Return the columns of an input, quoted."""
        return self._dialect.listed(self.table_columns(name))

    def with_every(self, changed: Mapping[TableName, str]) -> str:
        """Return the WITH clause of all rows of each input, as they were and as they are, as `affected_keys` reads them.

        Args:
            changed: The views of changed rows.
        """
        texts = list[str]()
        for number, name in enumerate(self.query.inputs):
            text = f"SELECT {self.listed(name)} FROM {self.every(name)}"
            if name in changed:
                text += f" UNION ALL SELECT {self.listed(name)} FROM {changed[name]}"
            texts.append(f"ratify_every_{number} AS ({text})")
        return f"WITH {', '.join(texts)}"

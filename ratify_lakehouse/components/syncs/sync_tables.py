"""What a pass of a sync needs of its engine, Spark or DuckDB: to read the source, and to read and write tables."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.expectations.rule_dialects import RuleDialect
from ratify_lakehouse.components.syncs.accepted_rows import AcceptedRows
from ratify_lakehouse.components.syncs.compared_rows import SyncCounts
from ratify_lakehouse.components.syncs.row_queries import RowQueries, Rows
from ratify_lakehouse.components.syncs.source_rows import SourceRows
from ratify_lakehouse.components.syncs.sync_destination import SyncDestination
from ratify_lakehouse.components.syncs.sync_position import SyncPosition
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.computed_inputs import ComputedInputs
from ratify_lakehouse.delta.write_result import WriteResult


@dataclass(frozen=True)
class PreparedChanges:
    """What a pass would do.

    Attributes:
        source: What it has read.
        destination: Where its rows go.
        record: For the commit.
        accepted: The rows that fit; None if source and destination are as the last pass left them, so that nothing was read.
        counts: The rows, by what is done with them.
        changes: Changes by keys (see `destination_changes`); in the strategies append and full the rows; None where nothing
            is to be done.
    """

    source: SourceRows
    destination: SyncDestination
    record: ComputedInputs
    accepted: AcceptedRows | None = None
    counts: SyncCounts = field(default_factory=SyncCounts)
    changes: Rows | None = None


class SyncTables(RowQueries, Protocol):
    """The source and the tables of one attempt of a pass.

    It has begun when this is opened: rows that were read since are not written to a table which an erasure has fenced since.
    """

    sql: RuleDialect
    """The engine's words."""

    @property
    def catalog(self) -> UnityCatalog:
        """The catalog of the tables."""
        ...

    @property
    def position(self) -> SyncPosition:
        """What the sync has read before."""
        ...

    def source(self, *, at_once: bool = False) -> SourceRows:
        """Return the source's rows; of a table as it is only those that the destination may lack, where they are known.

        `at_once`: whether those of all new files are asked for, which no single commit can insert.

        Raises:
            TableMissing: a table of the query does not exist.
            SyncRefused: there is no such file.
            RowsNotConverted: a file cannot be read.
            HistoryNotContinued: rows since a version are needed, and the table did not only get rows.
        """
        ...

    def destination(self, given: Mapping[str, str]) -> SyncDestination:
        """Return the table that the sync writes to, given the types of the source's columns; nothing is created.

        Raises:
            As `find_destination`.
        """
        ...

    def stored(self, destination: SyncDestination) -> str:
        """Return the destination's rows at the version that the changes are computed against: a relation."""
        ...

    def rows_now(self, declaration: TableDeclaration) -> Rows:
        """Return the rows that a table has now; none where there is no such table."""
        ...

    def shown_rows(self, declaration: TableDeclaration, frame: Rows) -> list[dict[str, Any]]:
        """Run a query for changes of a table, with `change`, and return its rows as they can be shown."""
        ...

    def ensure_table(self, declaration: TableDeclaration) -> bool:
        """Create a table, and its schema, where they are missing; return whether it was created."""
        ...

    def update(self, declaration: TableDeclaration, changes: str, **relations: Rows) -> None:
        """Change rows of a table of our own, in one commit; none where nothing differs.

        A commit that conflicts with another one is made again, from the rows that the table has then.

        Args:
            declaration: The table, which exists.
            changes: Query, in the engine's words, for the changes by keys (see `destination_changes`); `{stored}` stands for
                the table's rows, and other names for relations.
            relations: These, by name.

        Raises:
            ReadBeforeErasure: a data subject was erased since the attempt began.
            CommitConflict: other writers won every attempt.
        """
        ...

    def write(self, prepared: PreparedChanges) -> WriteResult:
        """Write what a pass has prepared, in one commit to the destination, which exists; none where nothing is to be done.

        Raises:
            CommitConflict: another writer of such changes committed first, or the destination was created again.
            ReadBeforeErasure: a data subject was erased since the source was read.
            WrittenAfterErasure: so it is in the strategy append, and the rows are there.
            CommitOutcomeUnknown: it may have been ratified; run it again, which writes nothing twice.
        """
        ...


OpenTables = Callable[[], AbstractContextManager[SyncTables]]
"""Opens what one attempt of a pass needs."""

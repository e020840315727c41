"""The fence of an erasure: a commit to a table by which no rows get into it that were read before the erasure.

An erasure lists the data subject first. Then it takes the tables one by one, inputs first: it fences the table, and only
then looks for its rows and deletes them. A writer of ours notes a table's last fence before it reads what it will write, and
compares it in the commit itself: a load, a sync or a query that has read the rows of an erased subject is refused, and reads
again. What was ratified before the fence, the erasure finds; what was read after it, was read from inputs without such rows.

A table that there is not yet has no fence. So the erasure fences its list, too, after the last deletion, and after that the
tables of the catalog that are not fenced yet. A writer that finds its table missing notes the list's fence, and compares it
once the table is there: either the erasure has seen the table, or the writer sees the list's new fence.

The fence sets a property: Delta lets no other commit pass that was begun before such a one. Its `txn` excludes writes that
were computed against an older version of the table (see `COMPUTED`).
"""

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from uuid import uuid4

from ratify_lakehouse.delta.commit_actions import Proposal
from ratify_lakehouse.delta.commit_history import FENCE, Commit
from ratify_lakehouse.delta.computed_inputs import COMPUTED
from ratify_lakehouse.delta.snapshot import Snapshot
from ratify_lakehouse.errors import ReadBeforeErasure, TableMissing, WrittenAfterErasure

if TYPE_CHECKING:
    from ratify_lakehouse.delta.delta_log import DeltaLog

ERASED = "ops.erased_subjects"
"""The list of erased subjects, as schema.table, which a fence of it guards the tables by that there are not yet."""

_OPERATION = "SET TBLPROPERTIES"


def new_fence() -> dict[str, str]:
    """Return the property that fences a table."""
    return {FENCE: uuid4().hex}


def fencing(snapshot: Snapshot, record: str = "") -> Proposal:
    """Return the proposal that fences a table, whose commit has this record; no row changes."""
    fence = new_fence()
    configuration = {**snapshot.metadata.get("configuration", {}), **fence}
    return Proposal(
        operation=_OPERATION,
        parameters={"properties": json.dumps(fence)},
        metadata=({**snapshot.metadata, "configuration": configuration}, [{"action": "set-properties", "updates": fence}]),
        record=record,
        txns={COMPUTED: snapshot.version + 1},
    )


def fence_of(snapshot: Snapshot) -> str:
    """Return the id of the last erasure that has fenced a table; empty if none has."""
    return snapshot.properties.get(FENCE, "")


def refuse_older(snapshot: Snapshot, noted: str | None) -> None:
    """Refuse a commit of rows that were read before an erasure.

    Args:
        snapshot: The version that the commit follows.
        noted: The table's fence before the rows were read; None: they depend on no other table, nor on a file.

    Raises:
        ReadBeforeErasure: the table has another fence by now.
    """
    if noted is not None and fence_of(snapshot) != noted:
        raise ReadBeforeErasure(_message(snapshot.full_name))


def refuse_fenced(full_name: str, commits: Iterable[Commit], committed: tuple[str, int] | None = None) -> None:
    """As `refuse_older`, by the commits to the table since the rows were read. `committed`: see `Overtaken`."""
    if any(commit.is_fence for commit in commits):
        raise ReadBeforeErasure(_message(full_name, committed), committed)


def refuse_written(full_name: str, commits: Iterable[Commit], after: Callable[[Commit], int | None]) -> None:
    """Refuse to go on where rows that were read before an erasure were committed after it, by a write that nothing refuses.

    An erasure since then has looked the table through, so that one may go on.

    Args:
        full_name: The table.
        commits: Its newest commits, newest first.
        after: Returns the version that a write of the caller's was planned for; None for other commits.

    Raises:
        WrittenAfterErasure: the newest such write follows the fence of an erasure that came after its plan.
    """
    written, planned = -1, -1
    for commit in commits:
        if written >= 0 and commit.version <= planned:
            return
        if commit.is_fence:
            if written < 0:
                return
            raise written_after(full_name, written)
        if written < 0 and (found := after(commit)) is not None:
            written, planned = commit.version, found


def written_after(full_name: str, version: int) -> WrittenAfterErasure:
    """Return the error of a commit that was made though an erasure came after its rows were read."""
    return WrittenAfterErasure(
        f"Version {version} of {full_name} may have rows of a data subject that was erased after they were read, and "
        "before they were committed. Run `ratify erase` again for that subject, which deletes them; then run this again. "
        "No other row is missing or duplicated."
    )


def _message(full_name: str, committed: tuple[str, int] | None = None) -> str:
    what = f"Version {committed[1]} has them" if committed else "Nothing was committed"
    return (
        f"A data subject was erased while rows for {full_name} were read, so these may include rows of that subject. "
        f"{what}: try again, which reads the current rows."
    )


class NotedFences:
    """The fences of the tables that a unit of work writes, as they were before it has read what it writes."""

    def __init__(self, erased: Callable[[], "DeltaLog"]) -> None:
        """Take what returns the log of the list of erased subjects."""
        self._erased = erased
        self._noted = dict[str, str]()
        self._missing = dict[str, str]()

    def note(self, full_name: str, log: "DeltaLog") -> None:
        """Note a table's fence. A table that is missing has none: that of the list of erased subjects stands for it.

        Raises:
            As `DeltaLog.refresh`.
        """
        self._missing.pop(full_name, None)
        found = _fence(log)
        if found is None:
            self._missing[full_name] = _fence(self._erased()) or ""
        self._noted[full_name] = found or ""

    def of(self, full_name: str) -> str | None:
        """Return the noted fence of a table, which is there by now; None if none was noted.

        Raises:
            ReadBeforeErasure: the table was missing, and something was erased since.
        """
        if full_name in self._missing and (_fence(self._erased()) or "") != self._missing[full_name]:
            raise ReadBeforeErasure(_message(full_name))
        return self._noted.get(full_name)


def _fence(log: "DeltaLog") -> str | None:
    """The fence of a table; None if there is no such table."""
    try:
        return fence_of(log.refresh())
    except TableMissing:
        return None

"""Up to which versions of its inputs a table was computed: each commit that makes it equal to its query records that.

The record is in the commit's user metadata, so that rows and record are ratified together, and nothing else keeps state. (A
Delta writer takes one `txn` a commit, and a table has several inputs.)
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ratify_lakehouse.delta.commit_history import SAME_ROWS, Commit

COMPUTED = "ratify:computed"
"""App id of the `txn` of writes that are computed against a version of their table: its version is the next one."""

COMMITS_READ = 30
"""The newest commits of a table, among which its record is looked for."""


class FullRecompute(Exception):
    """A table has to be computed as a whole; the text is the reason.

    Attributes:
        lasting: Whether every pass will have that reason; otherwise the next one can go on from this one.
    """

    def __init__(self, reason: str, *, lasting: bool = False) -> None:
        super().__init__(reason)
        self.lasting = lasting


@dataclass(frozen=True)
class InputVersion:
    """A version of an input.

    Attributes:
        table_id: Of the input; another one after it was dropped and created again.
        version: Its Delta version.
        ledger: For a query that reads the landing order: the version of the ledger of landed files. Otherwise -1.
    """

    table_id: str
    version: int
    ledger: int = -1


@dataclass(frozen=True)
class QuarantineVersion:
    """What a commit says of its table's quarantine, which is another table and has commits of its own.

    Attributes:
        table_id: Of the quarantine.
        after: Its version before the pass.
        follows: Whether the pass was about to commit to it, after it committed to the table.
    """

    table_id: str
    after: int
    follows: bool


@dataclass(frozen=True)
class PartitionInputs:
    """The versions of the inputs that some partitions of a table were computed from, where these are not the table's.

    Attributes:
        partitions: Their keys.
        inputs: By full name; none if the partitions are to be computed, whatever has changed.
    """

    partitions: tuple[str, ...]
    inputs: Mapping[str, InputVersion]


@dataclass(frozen=True)
class ComputedInputs:
    """What a commit says of how its table was computed.

    Attributes:
        query: Digest of the query and the declaration.
        after: The version of the table that it was compared with.
        inputs: By full name.
        id: Of the record; the commits to the quarantine name it.
        quarantine: If the table has one.
        partitions: For a table with partitions: those that were computed from other versions than `inputs`.
        last_partition: For a table with partitions: the last one that there was; newer ones are not computed.
        rest_known: For a table with partitions: whether `inputs` tells of what is in no group of `partitions`.
        from_version: For a table that follows the changes of another one: the version that its declaration went on from.
    """

    query: str
    after: int
    inputs: Mapping[str, InputVersion]
    id: str = ""
    quarantine: QuarantineVersion | None = None
    partitions: tuple[PartitionInputs, ...] = ()
    last_partition: str = ""
    rest_known: bool = True
    from_version: int = 0

    def moved(self, now: Mapping[str, InputVersion]) -> int:
        """Return how many versions the inputs have had since."""
        return sum(found.version - self.inputs[name].version for name, found in now.items() if name in self.inputs)

    def read_newer(self, inputs: Mapping[str, InputVersion]) -> bool:
        """Return whether it was computed from a newer version of an input than one of these."""
        return any(
            since.table_id == read.table_id and since.version > read.version
            for name, read in inputs.items()
            if (since := self.inputs.get(name))
        )

    def to_json(self) -> str:
        """Return the record as one line."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of(cls, commit: Commit) -> "ComputedInputs | None":
        """Return the record of a commit, if it has one."""
        content = commit.record
        try:
            quarantine = QuarantineVersion(**found) if (found := content.get("quarantine")) else None
            groups = content.get("partitions", ())
            partitions = tuple(PartitionInputs(tuple(group["partitions"]), _versions(group["inputs"])) for group in groups)
            return cls(
                content["query"],
                content["after"],
                _versions(content["inputs"]),
                content.get("id", ""),
                quarantine,
                partitions,
                content.get("last_partition", ""),
                content.get("rest_known", True),
                content.get("from_version", 0),
            )
        except (KeyError, TypeError, AttributeError):
            return None


_REPLACED_AFTER = "replaced after"


def replaced_after(version: int, inputs: Iterable[str]) -> str:
    """Return the record of a commit that replaces a whole table, whose inputs were read when it had that version.

    It does not say which versions of the inputs they were, so that no strategy goes on from it: only their names.
    """
    return json.dumps({_REPLACED_AFTER: version, "inputs": {name: {} for name in inputs}})


def computed_in(commits: Iterable[Commit]) -> bool:
    """Return whether one of these commits was computed against a version of its table, or is a RESTORE to one.

    A write that was computed against an older version than that commit must not follow it. Delta's `txn` alone would accept
    it where a third commit lies between the versions that two writes were computed against. After a RESTORE the table has
    the rows of other versions of its inputs.
    """
    return any(
        ComputedInputs.of(commit) or _REPLACED_AFTER in commit.record or commit.operation == "RESTORE" for commit in commits
    )


def last_computed(history: Iterable[Commit]) -> ComputedInputs:
    """Return the newest record of a table.

    Args:
        history: Its newest commits, newest first.

    Raises:
        FullRecompute: there is none, or a commit changed the rows that the record does not know of.
    """
    record, oldest = None, 0
    for commit in history:
        oldest = commit.version
        if record and commit.version <= record.after:
            return record
        if record is None and (found := ComputedInputs.of(commit)):
            record = found
        elif commit.operation not in SAME_ROWS:
            raise FullRecompute(f"version {commit.version} of it, {commit.operation}, does not record its input versions")
    if record and oldest <= record.after + 1:
        return record
    raise FullRecompute("none of its latest commits records its input versions")


@dataclass(frozen=True)
class TablePosition:
    """Up to where a table has taken its inputs that goes on from its last commit and is never computed again.

    Attributes:
        record: Of the commit that decides; None where nothing was taken yet.
        version: The newest version that set the position, which the next pass follows; -1 if there is none.
    """

    record: ComputedInputs | None
    version: int


def last_position(history: Iterable[Commit]) -> TablePosition:
    """Return the position of a table. Of commits without a record only RESTORE moves it: to an older one.

    The fence of an erasure moves the version that the next pass follows.

    Args:
        history: Its commits, newest first, as far back as needed.

    Raises:
        FullRecompute: it has rows, and no commit says from which versions of the inputs they are; or it may have some,
            because its history does not go back to its first version.
    """
    newest, oldest, until, unknown = -1, 0, None, None
    for commit in history:
        oldest = commit.version
        if until is not None and commit.version > until:
            continue
        if record := ComputedInputs.of(commit):
            return TablePosition(record, max(newest, commit.version))
        if commit.operation == "RESTORE":
            newest, restored = max(newest, commit.version), str(commit.parameters.get("version"))
            if not restored.isdigit():
                raise FullRecompute(f"version {commit.version} of it is a RESTORE to a time, not to a version")
            until = int(restored)
        elif commit.is_fence:
            # Its `txn` refuses what follows an earlier version.
            newest = max(newest, commit.version)
        elif commit.operation not in SAME_ROWS and unknown is None:
            unknown = commit
    if oldest > 0:
        raise FullRecompute(
            f"its log begins at version {oldest}, and no commit since records the input versions of its rows"
        )
    if unknown is not None:
        raise FullRecompute(
            f"it has rows, such as those of its version {unknown.version}, and no commit records their input versions"
        )
    return TablePosition(None, newest)


def quarantine_record(record: ComputedInputs, inputs: Mapping[str, InputVersion]) -> str:
    """Return the record of a commit to a quarantine.

    Args:
        record: The one that its table has.
        inputs: The versions that the quarantine, and so the table, agrees with. A pass that changes no row of the table has
            newer ones than the record.
    """
    return json.dumps({"quarantine of": record.id, "inputs": {name: asdict(each) for name, each in inputs.items()}})


def with_quarantine(record: ComputedInputs, table_id: str, version: int, history: Iterable[Commit]) -> ComputedInputs:
    """Return a table's newest record, with the versions of the inputs that its quarantine agrees with, too.

    A pass commits to the table first, and then to the quarantine. One that was killed in between, or that another pass
    overtook, leaves a quarantine that is not known to agree with the table.

    Args:
        record: The table's newest.
        table_id: The quarantine's.
        version: The quarantine's.
        history: Its newest commits, newest first.

    Raises:
        FullRecompute: it is not known to be as the passes left it that the record knows of.
    """
    known = record.quarantine
    if known is None or known.table_id != table_id or version < known.after:
        raise FullRecompute("its quarantine was dropped and created again since")
    newer = [commit for commit in history if commit.version > known.after]
    inputs = [_quarantine_inputs(commit, record.id) for commit in newer if commit.operation not in SAME_ROWS]
    if None in inputs or len(newer) != version - known.after or (known.follows and not inputs):
        raise FullRecompute("its quarantine is not as the last pass left it")
    return replace(record, inputs=inputs[0]) if inputs and inputs[0] else record


def _quarantine_inputs(commit: Commit, of: str) -> dict[str, InputVersion] | None:
    """The versions in the record of a commit to the quarantine; None if it is not of that table's record."""
    content = commit.record
    if content.get("quarantine of") != of:
        return None
    return _versions(content["inputs"])


def _versions(inputs: Mapping[str, Any]) -> dict[str, InputVersion]:
    return {name: InputVersion(**version) for name, version in inputs.items()}

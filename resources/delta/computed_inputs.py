"""Up to which versions of its inputs a table was computed: each commit that makes it equal to its query records that.

The record is in the commit's user metadata, so that rows and record are ratified together, and nothing else keeps state. (A
Delta writer takes one `txn` a commit, and a table has several inputs.)
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from resources.delta.commit_history import Commit

COMMITS_READ = 30
"""The newest commits of a table, among which its record is looked for."""

# Operations that leave a table's rows as they are.
_SAME_ROWS = frozenset(
    {
        "ADD COLUMNS",
        "CREATE TABLE",
        "OPTIMIZE",
        "REORG",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "CHANGE COLUMN",
        "CLUSTER BY",
        "COMPUTE STATS",
        "UPGRADE PROTOCOL",
        "VACUUM START",
        "VACUUM END",
    }
)


class FullRecompute(Exception):
    """A table has to be computed as a whole; the text is the reason."""


@dataclass(frozen=True)
class InputVersion:
    """A version of an input.

    Attributes:
        table_id: Of the input; another one after it was dropped and created again.
        version: Its Delta version.
        landings: For a query that reads the landing order: how often content had landed again.
    """

    table_id: str
    version: int
    landings: int = 0


@dataclass(frozen=True)
class ComputedInputs:
    """What a commit says of how its table was computed.

    Attributes:
        query: Digest of the query and the declaration.
        after: The version of the table that it was compared with.
        inputs: By full name.
    """

    query: str
    after: int
    inputs: Mapping[str, InputVersion]

    def to_json(self) -> str:
        """Return the record as one line."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of(cls, commit: Commit) -> "ComputedInputs | None":
        """Return the record of a commit, if it has one."""
        _, _, text = (commit.user_metadata or "").partition(" ")
        try:
            content = json.loads(text)
            inputs = {name: InputVersion(**version) for name, version in content["inputs"].items()}
            return cls(content["query"], content["after"], inputs)
        except (ValueError, KeyError, TypeError):
            return None


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
        elif commit.operation not in _SAME_ROWS:
            raise FullRecompute(
                f"version {commit.version} of it, {commit.operation}, does not say from which versions of the inputs it is"
            )
    if record and oldest <= record.after + 1:
        return record
    raise FullRecompute("none of its latest commits says from which versions of the inputs it is")

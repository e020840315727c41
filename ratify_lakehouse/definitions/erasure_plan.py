"""What has rows of a subject, what an erasure does with it, and what remains of it until when."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ratify_lakehouse.engines.duckdb.subject_search import HeldIn, HoldingFile
from ratify_lakehouse.ingest.file_source import LandedCopy
from ratify_lakehouse.sql.subject_match import Match
from ratify_lakehouse.wording import counted


@dataclass(frozen=True)
class TableHolding:
    """A table in which a subject is looked for.

    Attributes:
        full_name: The table.
        matches: How its rows are known.
        version: The version that was looked at.
        rows: How many it has.
        matched: Those of the subject.
        files: What has something of the subject.
        retained_s: Seconds for which the table keeps deleted files.
        log_retained_s: Likewise, versions in its log; 0: not known.
        refused: Why its rows cannot be deleted; empty if they can.
        stays: Why its files cannot be removed, as each reason says; none if they can.
        set_aside: Whether it has only rows that others refused.
        undeclared: Whether its rows are known by the value alone, in columns that nothing is declared of: they stay.
        unsearched: Why it could not be looked through; empty if it was.
        written_by: What its commits record of writes of ours, if it has no declaration; empty if there are none.
    """

    full_name: str
    matches: Sequence[Match]
    version: int = -1
    rows: int = 0
    matched: int = 0
    files: Sequence[HoldingFile] = ()
    retained_s: int = 0
    log_retained_s: int = 0
    refused: str = ""
    stays: Sequence[str] = ()
    set_aside: bool = False
    undeclared: bool = False
    unsearched: str = ""
    written_by: str = ""

    @property
    def found_by(self) -> str:
        """The columns by which its rows are known."""
        return ", ".join(sorted({f"{match.column}.{match.name}" if match.name else match.column for match in self.matches}))

    def files_of(self, *kinds: HeldIn) -> list[HoldingFile]:
        """Return the files of these kinds."""
        return [file for file in self.files if file.kind in kinds]


@dataclass(frozen=True)
class LandedHolding:
    """A landed file with rows of the subject.

    Attributes:
        table: The bronze table of its rows, as schema.table.
        root: The landing zone, or a folder of it.
        path: Of the file in it.
        fingerprint: Of the version that was read.
        policy: What is declared.
        matches: How rows of the subject are known in it.
        folder: In the landing zone: the root is that of the archive or of the dead letters; empty: of the landing zone.
        stays: Why it cannot be rewritten, though that is declared; empty if it can.
    """

    table: str
    root: str
    path: str
    fingerprint: str
    policy: LandedCopy
    matches: Sequence[Match] = ()
    folder: str = ""
    stays: str = ""


@dataclass(frozen=True)
class Remaining:
    """Something that an erasure leaves.

    Attributes:
        place: Where.
        what: What is there.
        until: When it goes, or what makes it go.
        why: Why it is still there.
    """

    place: str
    what: str
    until: str
    why: str


@dataclass(frozen=True)
class ErasurePlan:
    """What has rows of a subject. It does not have the subject's value.

    Attributes:
        kind: Of the subject.
        digest: Keyed hash of the subject, shortened; empty where there is no key yet.
        tables: Those in which it can be found, inputs first.
        landed: Files in the landing zone.
        others: What else may have something of it.
        unfound: Tables with personal data in which it cannot be found, with the reason.
        unsearched: What could not be looked through beside those of the tables, or not be fenced.
        to_fence: Full names of the tables that are, or were, ours and may have rows of the subject, or get some.
    """

    kind: str
    digest: str
    tables: Sequence[TableHolding]
    landed: Sequence[LandedHolding]
    others: Sequence[Remaining]
    unfound: Mapping[str, str]
    unsearched: Sequence[Remaining] = ()
    to_fence: Sequence[str] = ()

    def refusals(self, *, all_rows: bool = False) -> list[str]:
        """Return why it may not be carried out; nothing is changed then.

        Args:
            all_rows: Whether a table may lose all of its rows.
        """
        declared = [each for each in self.tables if not each.undeclared]
        found = [f"{each.full_name}: {each.refused}" for each in declared if each.matched and each.refused]
        # What others refused may well be of one subject alone.
        own = [each for each in declared if not each.set_aside]
        whole = [each for each in own if each.matched == each.rows > 1 and not all_rows]
        found += [
            f"All {each.rows:,} rows of {each.full_name} are of this subject. Pass --all-rows if you mean them all."
            for each in whole
        ]
        return found

    def not_erased(self) -> list[str]:
        """Return where rows of the subject are left, or may be, that no retention ends; each once."""
        tables = [each.full_name for each in self.tables if each.matched or each.unsearched]
        return [*dict.fromkeys([*tables, *(each.place for each in self.unsearched)])]

    def remaining(self, now: float) -> list[Remaining]:
        """Return what is left, or would be right after the erasure.

        Args:
            now: Seconds since 1970; rows that are there are deleted at this time.
        """
        tables = [each for table in self.tables for each in _of_table(table, now)]
        landed = [
            Remaining(f"{each.root}/{each.path}", f"landed file of {each.table}", "it is deleted by hand", why)
            for each in self.landed
            if (why := "declared: keep" if each.policy is LandedCopy.KEEP else each.stays)
        ]
        unfound = [Remaining(name, "rows, if there are any", "unknown", why) for name, why in self.unfound.items()]
        return [*tables, *landed, *self.unsearched, *self.others, *unfound]


def _of_table(table: TableHolding, now: float) -> list[Remaining]:
    found = list[Remaining]()
    if table.unsearched:
        found.append(Remaining(table.full_name, "rows, if there are any", "unknown", table.unsearched))
    if table.undeclared and table.matched:
        until = f"declare `subject` for {table.found_by}, or delete them by hand"
        why = "they have the value, but nothing says that it is this subject"
        why += f". {table.written_by}" if table.written_by else ""
        found.append(Remaining(table.full_name, counted(table.matched, "row"), until, why))
    data = table.files_of(HeldIn.LIVE, HeldIn.OLD, HeldIn.UNNAMED)
    if data:
        ends = max(now if file.kind is HeldIn.LIVE else file.since for file in data) + table.retained_s
        why = (
            " ".join(table.stays) or "the table keeps deleted files so long; the job `clean`, or this command, removes them"
        )
        until = "unknown" if table.stays or not table.retained_s else utc(ends)
        found.append(Remaining(table.full_name, f"{counted(len(data), 'data file')} of old versions", until, why))
    if log := table.files_of(HeldIn.LOG):
        ends = max(file.since for file in log) + table.log_retained_s
        why = "least and greatest values in statistics; the job `clean`, or this command, removes a log up to a checkpoint"
        until = utc(ends) if table.log_retained_s else "unknown"
        found.append(Remaining(table.full_name, counted(len(log), "log file"), until, why))
    return found


def utc(seconds: float) -> str:
    """Return a time, seconds since 1970, as text."""
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M} UTC"

"""Files that are full lists: the date of each, and the columns that say of a row in which list it is.

A list is known by its file's path and bytes: the same bytes under another name are another list. Where the landing dates it,
each version of a file is a list of its own, too.
"""

import datetime as dt
import hashlib
import re
from dataclasses import dataclass

from ratify_lakehouse.declarations import Column
from ratify_lakehouse.errors import BadFile, UnsafeDeclaration

LIST_DATE, LANDED_AT = "_list_date", "_landed_at"

LIST_COLUMNS = (
    Column(LIST_DATE, "date", "Date of the list that the row is in"),
    Column(LANDED_AT, "timestamp", "When the row's file last changed, by its store's clock (UTC)"),
)
"""Columns that bronze adds to rows of full lists. Of several files of one date, the one that landed last is the list."""

_PARTS = {"%Y": r"(?P<year>\d{4})", "%m": r"(?P<month>\d{2})", "%d": r"(?P<day>\d{2})"}


@dataclass(frozen=True)
class ListDate:
    """Where the date of a list comes from; exactly one of the attributes says it.

    Attributes:
        name: How it is written in the path of the file, with %Y, %m and %d.
        column: Column of the rows; a file may then have several lists.
        landing: Whether it is the day (UTC) on which the file last changed.

    Raises:
        UnsafeDeclaration: none or several of them say it, or the name has no whole date.
    """

    name: str = ""
    column: str = ""
    landing: bool = False

    def __post_init__(self) -> None:
        if sum(map(bool, (self.name, self.column, self.landing))) != 1:
            raise UnsafeDeclaration(
                "the date of a list comes from one place: give one of `name`, `column` and `landing: true`.", "list_date"
            )
        if self.name and any(self.name.count(part) != 1 for part in _PARTS):
            raise UnsafeDeclaration(
                f"{self.name!r} has no whole date: write %Y, %m and %d, each once, as in %Y-%m-%d.", "list_date", "name"
            )

    def of_file(self, path: str, changed_at: dt.datetime) -> dt.date | None:
        """Return the date of the list in a file; None where its rows have it.

        Args:
            path: Of the file.
            changed_at: When it last changed.

        Raises:
            BadFile: its name has no date.
        """
        if self.column:
            return None
        if self.landing:
            return changed_at.astimezone(dt.UTC).date()
        # A longer number is no date; one of time may follow.
        pattern = re.compile(r"(?<!\d)" + "".join(_PARTS.get(part, re.escape(part)) for part in _parts(self.name)))
        for found in reversed(list(pattern.finditer(path))):
            try:
                return dt.date(int(found["year"]), int(found["month"]), int(found["day"]))
            except ValueError:
                continue
        raise BadFile(
            path,
            f"its name has no date like {self.name}, so that it is not known of which day its list is; "
            "rename it, or declare `list_date`",
        )

    def content(self, path: str, sha256: str, fingerprint: str) -> str:
        """Return what stands for the content of a file where others have the SHA-256 of its bytes.

        Args:
            path: Of the file.
            sha256: Of its bytes.
            fingerprint: Of its version, by the listing.
        """
        known = [path, sha256, *([fingerprint] if self.landing else [])]
        return hashlib.sha256("\n".join(known).encode(errors="surrogateescape")).hexdigest()


def _parts(name: str) -> list[str]:
    return re.split("(%[Ymd])", name)

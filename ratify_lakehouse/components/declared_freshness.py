"""The attribute `freshness` of a table, and durations as YAML gives them."""

import datetime as dt
import re

import dagster as dg
from pydantic import Field

from ratify_lakehouse.errors import UnsafeDeclaration

DURATION = r"^[1-9]\d* (second|minute|hour|day)s?$"
"""Pattern of a duration, such as 1 hour."""


class Freshness(dg.Model, dg.Resolvable):
    """How old the last new rows of a table may be. The defaults are for one that gets new rows every night."""

    warn_after: str = Field(
        default="25 hours",
        description="Age of the last new rows at which the check data_is_fresh warns, such as 2 hours",
    )
    error_after: str = Field(default="36 hours", description="Age at which it fails")

    def limits(self) -> tuple[dt.timedelta, dt.timedelta]:
        """Return both ages.

        Raises:
            UnsafeDeclaration: one is not a duration, or it would fail before it warns.
        """
        # Here and not by pydantic, whose errors name the line of `freshness` only.
        for field in ("warn_after", "error_after"):
            if not re.match(DURATION, text := getattr(self, field)):
                raise UnsafeDeclaration(f"{text!r} is not a duration: write one as 25 hours or 7 days.", field)
        warn_after, error_after = duration(self.warn_after), duration(self.error_after)
        if error_after < warn_after:
            raise UnsafeDeclaration(
                f"{self.error_after} is less than {self.warn_after}, after which the check only warns.", "error_after"
            )
        return warn_after, error_after


def duration(text: str) -> dt.timedelta:
    """Return a duration, which is written as `DURATION` has it; an empty text is none."""
    if not text:
        return dt.timedelta()
    number, unit = text.split()
    return dt.timedelta(**{f"{unit.removesuffix('s')}s": int(number)})

"""The outcome of a proposed commit: ratified, refused or unknown.

From the moment that a proposal has left, the catalog may ratify it, and no answer to a later request takes that back. So a
proposal is *refused* in two cases only:

- the log shows another commit as its version, or the table was dropped: then no request for it, however late it arrives, can
  be ratified any more;
- the catalog has refused every request for it, each by an answer of its own (see `catalog_answers`), and the log does
  not show the version.

It is *ratified* if the answer names its staged commit, or if the log has its `txnId` in that version. Whatever is neither is
*unknown*: its staged commit and its data files stay, because a version may name them yet.
"""

import random
import time
from collections.abc import Callable
from enum import Enum

from ratify_lakehouse.delta.snapshot import Json
from ratify_lakehouse.errors import (
    CatalogBusy,
    CatalogDenied,
    CatalogRejected,
    CommitConflict,
    CommitOutcomeUnknown,
    TableMissing,
    TransientError,
)

_RESEND_S = 0.2
_REFUSED = (CommitConflict, CatalogDenied, CatalogBusy, CatalogRejected, TableMissing)


class Winner(Enum):
    """Whose commit a version is, according to the log."""

    OURS = "ours"
    ANOTHER = "another"
    NOBODY = "nobody"


def outcome(
    send: Callable[[], Json], staged: str, winner: Callable[[], Winner], patience: float, unknown: str
) -> Json | None:
    """Propose a commit until it is ratified or refused.

    Args:
        send: Sends one request, and raises as `UnityCatalog.update_table`.
        staged: Name of the staged commit.
        winner: Reads the log.
        patience: Seconds for which the request is sent again.
        unknown: Says which commit, and what to do if its outcome is unknown.

    Returns:
        The catalog's answer, or None if the log shows that the commit was ratified.

    Raises:
        CommitOutcomeUnknown: it may have been ratified, or may be yet.
        CommitConflict: it was refused: another commit was first.
        CatalogDenied, CatalogBusy, CatalogRejected, TableMissing: it was refused.
    """
    deadline, all_refused = time.monotonic() + patience, True
    # A loop, not tenacity: what its last answer means depends on all before.
    while True:
        try:
            answer = send()
            if _names(answer, staged):
                return answer
            error: Exception = CommitConflict("The answer belongs to another commit.")
            all_refused = False
        except _REFUSED as refused:
            error = refused
        except Exception as unheard:  # noqa: BLE001 the proposal has left: whatever it is, it is no refusal
            error = _cause(unheard)
            all_refused = False
        in_time = time.monotonic() < deadline
        if not (in_time and isinstance(error, TransientError)) or isinstance(error, CommitConflict):
            found = _asked(winner, unknown, error)
            if found is Winner.OURS:
                return None
            if found is Winner.ANOTHER or all_refused:
                raise error
            if not (in_time and isinstance(error, CommitConflict)):
                raise CommitOutcomeUnknown(f"{unknown} {error}") from error
        time.sleep(min(_pause(error), max(0.0, deadline - time.monotonic())))


def _names(answer: Json, staged: str) -> bool:
    """Whether a table has a staged commit among those that are not published yet."""
    commits: list[Json] = answer.get("commits") or []
    return any(commit.get("file-name") == staged for commit in commits)


def _cause(error: Exception) -> Exception:
    cause = error.__cause__
    return cause if isinstance(error, CommitOutcomeUnknown) and isinstance(cause, Exception) else error


def _asked(winner: Callable[[], Winner], unknown: str, error: Exception) -> Winner:
    try:
        return winner()
    except Exception as unheard:
        raise CommitOutcomeUnknown(f"{unknown} {error} {unheard}") from unheard


def _pause(error: Exception) -> float:
    asked = error.retry_after if isinstance(error, CatalogBusy) else 0
    return max(asked, _RESEND_S * (0.5 + random.random()))  # noqa: S311 a delay, no key

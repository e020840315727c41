"""What every pass of a sync does after a conflict: it reads, compares and writes again, because all of it may differ."""

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from ratify_lakehouse.errors import CommitConflict

T = TypeVar("T")


def retried(once: Callable[[], T], attempts: int = 5) -> T:
    """Run a pass until no other writer wins, and return what it did.

    Raises:
        CommitConflict: other writers won every attempt.
        Whatever the pass raises.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(CommitConflict),
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=0.5, max=10),
        reraise=True,
    )
    return retrying(once)

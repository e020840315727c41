"""What every pass of a sync does after a conflict: it reads, compares and writes again, because all of it may differ."""

from collections.abc import Callable
from typing import TypeVar

from tenacity import (
    Retrying,
    retry_if_exception_type,
    retry_if_not_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from ratify_lakehouse.errors import CommitConflict, ReadBeforeErasure

T = TypeVar("T")


def retried(once: Callable[[], T], attempts: int = 5, *, reads: bool = True) -> T:
    """Run a pass, or a part of one, until no other writer wins, and return what it did.

    Args:
        once: What is run.
        attempts: At most so many.
        reads: Whether it reads the source, so that it may be run again also where something was erased since.

    Raises:
        CommitConflict: other writers won every attempt.
        Whatever it raises.
    """
    conflict = retry_if_exception_type(CommitConflict)
    retrying = Retrying(
        retry=conflict if reads else conflict & retry_if_not_exception_type(ReadBeforeErasure),
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=0.5, max=10),
        reraise=True,
    )
    return retrying(once)

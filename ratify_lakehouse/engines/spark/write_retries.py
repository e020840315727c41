"""Writes by Spark that are tried again after other writers have committed first."""

import logging
from collections.abc import Callable
from typing import TypeVar

from tenacity import (
    Retrying,
    before_sleep_log,
    retry_if_exception_type,
    retry_if_not_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from ratify_lakehouse.errors import CommitConflict, Overtaken

T = TypeVar("T")

logger = logging.getLogger(__name__)


def retried_write(write: Callable[[], T], attempts: int, *, reads: bool = False) -> T:
    """Run a write until no other commit conflicts with it, and return what it did.

    Args:
        write: The write.
        attempts: At most so many.
        reads: Whether it reads what it writes each time, so that it may be tried again also where that was outdated.

    Raises:
        Overtaken: what it writes has to be computed again.
        CommitConflict: other writers won every attempt.
    """
    conflict = retry_if_exception_type(CommitConflict)
    retrying = Retrying(
        # No other transient error: after one of those, the write may have been committed.
        retry=conflict if reads else conflict & retry_if_not_exception_type(Overtaken),
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=0.5, max=10),
        before_sleep=before_sleep_log(logger, logging.WARNING),
        reraise=True,
    )
    return retrying(write)

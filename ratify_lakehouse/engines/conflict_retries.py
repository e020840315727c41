"""Retries of writes after other writers have committed first: all of it is read, computed and written again."""

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

from ratify_lakehouse.errors import CommitConflict

T = TypeVar("T")

logger = logging.getLogger(__name__)


def retried(once: Callable[[], T], attempts: int, *, unless: tuple[type[CommitConflict], ...] = ()) -> T:
    """Run a write until no other writer wins, and return what it did.

    Args:
        once: The write, with what it reads.
        attempts: At most so many.
        unless: The conflicts after which it would only do the same again: it does not read what is outdated.

    Raises:
        CommitConflict: other writers won every attempt, or it is one of `unless`.
        Whatever the write raises.
    """
    retrying = Retrying(
        # No other transient error: after one of those, the write may have been committed.
        retry=retry_if_exception_type(CommitConflict) & retry_if_not_exception_type(unless),
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=0.5, max=10),
        before_sleep=before_sleep_log(logger, logging.WARNING),
        reraise=True,
    )
    return retrying(once)

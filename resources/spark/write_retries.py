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

from resources.errors import CommitConflict, Overtaken

T = TypeVar("T")

logger = logging.getLogger(__name__)


def retried_write(write: Callable[[], T], attempts: int) -> T:
    """Run a write until no other commit conflicts with it, and return what it did.

    Raises:
        Overtaken: what it writes has to be computed again.
        CommitConflict: other writers won every attempt.
    """
    retrying = Retrying(
        # No other transient error: after one of those, the write may have been committed.
        retry=retry_if_exception_type(CommitConflict) & retry_if_not_exception_type(Overtaken),
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=0.5, max=10),
        before_sleep=before_sleep_log(logger, logging.WARNING),
        reraise=True,
    )
    return retrying(write)

"""Versions that another engine proposed and lost to us, and the wait until it has committed one."""

from collections import Counter

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from ratify_lakehouse.delta.delta_log import STAGED, DeltaLog

_LOOK_BACK = 100
_POLL_S = 0.05


def newest_lost_version(log: DeltaLog, after: int) -> int:
    """Return the newest of the last hundred versions, above `after`, that another writer proposed and lost; -1 if none.

    The staged commit of another engine stays in the log if the catalog refuses it, while ours is removed: a version that
    somebody lost has two staged commits.
    """
    version = log.version
    # Of a hundred versions all digits but two are alike.
    prefixes = {f"{max(0, number):020d}"[:-2] for number in (version, version - _LOOK_BACK)}
    proposed = Counter(name[:20] for prefix in prefixes for name in log.storage.names(STAGED, prefix))
    lost = (number for number in range(version, max(after, version - _LOOK_BACK), -1) if proposed[f"{number:020d}"] > 1)
    return next(lost, -1)


def wait_for_other_version(log: DeltaLog, seconds: float) -> bool:
    """Wait until another writer has committed a version after our last; return whether one came in time."""
    polling = Retrying(
        retry=retry_if_result(lambda newer: not newer),
        stop=stop_after_delay(seconds),
        wait=wait_fixed(_POLL_S),
        retry_error_callback=lambda _: False,
    )
    return polling(lambda: log.latest_version() > log.version)

"""When a pass records that it has read versions of its input which gave no row."""

import time
from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.components.strategies.pass_scope import READ_AGAIN_SECONDS, VERSIONS_READ_AGAIN, is_far_behind
from tests.delta.written_log import WrittenTable, metadata

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("first", "last", "age_ms", "far"),
    [
        # By their number, whatever the log says, and by the age of the first one.
        (1, VERSIONS_READ_AGAIN, 0, True),
        (1, VERSIONS_READ_AGAIN - 1, 0, False),
        (1, 1, READ_AGAIN_SECONDS * 1000 - HOUR_MS, False),
        (1, 1, READ_AGAIN_SECONDS * 1000 + HOUR_MS, True),
        (2, 1, READ_AGAIN_SECONDS * 1000 + HOUR_MS, False),
    ],
)
def test_many_versions_or_an_old_one(tmp_path: Path, first: int, last: int, age_ms: int, *, far: bool) -> None:
    table = WrittenTable(tmp_path)
    table.commit(metadata())
    table.commit(timestamp=int(time.time() * 1000) - age_ms)
    log: Any = table.log()
    assert is_far_behind(log, first, last) == far
    assert is_far_behind(None, first, last) == (last >= VERSIONS_READ_AGAIN)

"""Strategy `incremental`: whatever happens to the inputs and to a pass, a table equals its query after the next pass.

`test_changes_by_duckdb.py` has the same by DuckDB, where 1,000 tables take less time than 200 here.
"""

import pytest

from tests.components.incremental_sequences import report, sequence
from tests.engines.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation")]


# Groups of a join, a set operation, and an as-of join whose first pass is killed. In `make test`, DuckDB has such sequences
# (test_changes_by_duckdb.py), and Spark has passes (test_changes_of_landed_files.py, test_changes_of_spark.py).
@pytest.mark.long
@pytest.mark.parametrize("seed", ["short 31", "short 9", "short 15"])
@pytest.mark.usefixtures("no_previews")
def test_they_equal_their_queries(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    report(sequence(lake, monkeypatch, seed, 1, 2, compared=False))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_they_equal_their_queries_at_length(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    report(sequence(lake, monkeypatch, str(seed), 20, 3))

"""The history of full lists by Spark, as `test_listed_files.py` has it by DuckDB."""

import random
from pathlib import Path
from uuid import uuid4

import pytest

from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from tests.components.incremental_tables import without_pictures
from tests.components.listed_files import ListedFiles, land_something
from tests.engines.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.locks("ledger of files")]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_the_history_is_that_of_the_model(
    lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    without_pictures(monkeypatch)
    lake.catalog.ensure_schemas(("bronze", "silver"))
    lake.spark.ensure_table(LANDED_FILES)
    files = ListedFiles(lake, tmp_path, f"l_{uuid4().hex[:8]}", "spark")
    chance = random.Random(seed)  # noqa: S311 files, not keys
    for step in range(4):
        for number in range(3):
            land_something(files, chance, 10 * step + number)
        files.check()

"""Full lists each day, from the landed files to the table of their history: whatever lands, and when, it is the model's."""

import datetime as dt
import random
from pathlib import Path
from uuid import uuid4

import pytest

from ratify_lakehouse.components.checks.landed_file_checks import files_loaded_once
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from tests.components.incremental_tables import without_pictures
from tests.components.listed_files import ListedFiles, land_something, refusals
from tests.components.sparkless import Sparkless, sparkless
from tests.sql.list_model import ListedRow

__all__ = ["sparkless"]

pytestmark = pytest.mark.server

A, B = {1: ListedRow(1, 1), 2: ListedRow(1, 1)}, {1: ListedRow(2, 1)}


def day(number: int) -> dt.date:
    return dt.date(2024, 1, number)


@pytest.fixture(scope="module")
def here(sparkless: Sparkless) -> Sparkless:
    sparkless.spark.ensure_table(LANDED_FILES)
    sparkless.catalog.ensure_schemas(("bronze", "silver"))
    return sparkless


@pytest.fixture
def files(here: Sparkless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ListedFiles:
    without_pictures(monkeypatch)
    return ListedFiles(here, tmp_path, f"l_{uuid4().hex[:8]}")


def test_a_b_a_is_three_lists(files: ListedFiles) -> None:
    for number, rows in enumerate((A, B, A, A), 1):
        files.land_list(day(number), rows)
    files.check()
    assert files.history() == [
        (1, 1, 1, day(1), day(2)),
        (1, 1, 1, day(3), None),
        (1, 2, 1, day(2), day(3)),
        (2, 1, 1, day(1), day(2)),
        (2, 1, 1, day(3), None),
    ]
    found = files_loaded_once(files.zone, files.lake.duckdb, files.source)
    assert found.passed, found.description
    assert found.numbers["rows in files"] == found.numbers["rows in bronze"] == 7


@pytest.mark.parametrize(("seed", "steps"), [(2, 4), *(pytest.param(n, 12, marks=pytest.mark.long) for n in range(30))])
def test_the_history_is_that_of_the_model(files: ListedFiles, seed: int, steps: int) -> None:
    chance = random.Random(seed)  # noqa: S311 files, not keys
    for step in range(steps):
        for number in range(chance.choice((1, 1, 2, 4))):
            land_something(files, chance, 10 * step + number)
        files.check()


def test_lists_that_cannot_be_lists_are_refused(files: ListedFiles) -> None:
    files.land_list(day(1), A)
    files.land_list(day(2), {})
    files.land("customers.csv", "1,1,1\n")
    refused = refusals(files.load())
    assert refused == {
        "list_2024-01-02.csv": "it has no rows, and as a list it would end all that are current; land the whole list",
        "customers.csv": "its name has no date like %Y-%m-%d, so that it is not known of which day its list is; rename it, "
        "or declare `list_date`",
    }
    files.check()


def test_the_landing_dates_files_of_one_name(here: Sparkless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one day the last counts, and equal bytes of another day are a list of that."""
    without_pictures(monkeypatch)
    files = ListedFiles(here, tmp_path, f"l_{uuid4().hex[:8]}", list_date={"landing": True})
    texts = {"a": "1,1,1\n2,1,1\n", "b": "1,2,1\n"}
    for hour, name in ((1, "a"), (24, "b"), (25, "a"), (26, "b"), (48, "b")):
        files.land("customers.csv", texts[name], at=dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=hour))
        files.load()
    files.lists = {day(1): A, day(2): B, day(3): B}
    files.check()
    found = files_loaded_once(files.zone, files.lake.duckdb, files.source)
    assert found.passed, found.description
    assert (found.numbers["rows in files"], len(files.lake.quick(f"SELECT k FROM ratify.bronze.{files.name}"))) == (1, 7)


def test_a_column_dates_the_lists_of_a_file(here: Sparkless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pictures(monkeypatch)
    files = ListedFiles(here, tmp_path, f"l_{uuid4().hex[:8]}", columns=[], list_date={"column": "seen"})
    files.land("both.csv", "1,1,1,2024-01-02 09:00:00\n1,2,1,2024-01-01 23:59:59\n", "k,value,note,seen\n")
    files.land("corrected.csv", "1,3,1,2024-01-01 12:00:00\n", "k,value,note,seen\n")
    files.land("undated.csv", "1,3,1,\n", "k,value,note,seen\n")
    assert refusals(files.load()) == {
        "undated.csv": "row 1: column seen has no date, which is that of the row's list; fix the row"
    }
    files.lists = {day(1): {1: ListedRow(3, 1)}, day(2): {1: ListedRow(1, 1)}}
    files.check()

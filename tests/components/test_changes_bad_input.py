"""Strategy `incremental` where it cannot go by the changes: an error, or all rows with the reason; nothing half-written."""

from collections.abc import Callable

import pytest

from ratify_lakehouse.components.strategies import incremental_pass
from ratify_lakehouse.components.strategies.pass_plan import PassPlan
from ratify_lakehouse.errors import QueryMismatch, TableMissing
from tests.components.begun_tables import planned
from tests.components.incremental_tables import moved, without_pictures
from tests.components.one_input import RECODED, TOTALS, OneInput, OneInputOfDuckDB

pytestmark = pytest.mark.server

Shops = Callable[[bool], OneInput]
"""Make an input with a change data feed, or without one."""


@pytest.fixture(autouse=True)
def pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pictures(monkeypatch)


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=[pytest.mark.stack, pytest.mark.long])])
def shops(request: pytest.FixtureRequest) -> Shops:
    """By each engine."""
    if request.param == "duckdb":
        return lambda feed: OneInputOfDuckDB(request.getfixturevalue("sparkless"), feed=feed)
    for what in ("quick_creation", "no_previews"):
        request.getfixturevalue(what)
    return lambda feed: OneInput(request.getfixturevalue("lake"), feed=feed)


def test_versions_without_a_feed_are_compared(shops: Shops) -> None:
    """The feed begins after the change, a column is added meanwhile; and keys have braces, quotes and NULL."""
    shop = shops(False)
    table = shop.table(TOTALS)
    shop.begun(table)
    shop.quick("UPDATE a SET v = v + 1")
    shop.quick("ALTER TABLE a SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    shop.add_column("more", "int")
    shop.quick("DELETE FROM a WHERE k = '{rows}' OR k IS NULL")
    assert shop.made(table) == ("", 1)


def test_a_version_that_is_gone_is_not_compared(shops: Shops) -> None:
    shop = shops(False)
    table = shop.table(TOTALS)
    shop.begun(table)
    files = list(shop.folder().glob("*.parquet"))
    shop.quick("UPDATE a SET v = v + 1")
    for file in files:
        file.unlink()
    reason, versions = shop.made(table)
    assert reason.startswith(f"what changed in {shop.schema}.a since version 1 cannot be read: ")
    assert versions == 1
    assert shop.goes_on(table) == "nothing"


def test_a_full_computation_is_recorded_though_no_row_differs(shops: Shops, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other code, maintenance, and an input that was made again: the next pass goes on from there."""
    shop = shops(True)
    table = shop.table(TOTALS)
    shop.made(table)
    again = shop.table(RECODED)
    assert shop.made(again) == ("its query or declaration has changed", 1)
    assert shop.made(again) == ("", 0)
    monkeypatch.setattr(incremental_pass, "COMMITS_READ", 1)
    shop.quick("ALTER TABLE t SET TBLPROPERTIES ('of.a.test' = '1')")
    assert shop.made(again) == ("none of its latest commits records its input versions", 1)
    assert shop.made(again) == ("", 0)
    shop.quick("DROP TABLE a")
    with pytest.raises(TableMissing):
        shop.made(again)
    shop.create(feed=True)
    assert shop.made(again) == (f"{shop.schema}.a was dropped and created again since", 1)
    assert shop.made(again) == ("", 0)


def test_a_full_computation_does_not_undo_a_newer_one(shops: Shops, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = shops(True)
    shop.begun(shop.table(TOTALS))
    table = shop.table(RECODED)

    def another() -> None:
        shop.quick("INSERT INTO a VALUES ('new', 9)")
        assert shop.made(table) == ("its query or declaration has changed", 1)

    # It has computed the rows of the input as it was.
    with moved(monkeypatch, *shop.overtaken, another):
        assert shop.made(table) == ("", 1)


def test_changes_that_change_no_row_are_not_read_for_ever(shops: Shops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental_pass, "VERSIONS_READ_AGAIN", 2)
    shop = shops(True)
    table = shop.table("SELECT k, max(v) AS most")
    shop.begun(table)
    for _ in range(2):
        shop.quick("INSERT INTO a VALUES ('{', 0)")
    # Below that number of versions it is not recorded: see `test_keys_that_are_not_unique_write_nothing`.
    assert shop.made(table) == ("", 1)
    shop.quick("INSERT INTO a VALUES ('{', 0)")
    assert planned(shop.lake, table) == PassPlan("changed rows", "", {f"ratify.{shop.schema}.a": (3, 4)})


def test_keys_that_are_not_unique_write_nothing(shops: Shops) -> None:
    shop = shops(True)
    table = shop.declared(f"SELECT k, v FROM {shop.schema}.a", ["k"])
    shop.begun(table)
    shop.quick("INSERT INTO a VALUES ('{', 9)")
    with pytest.raises(QueryMismatch, match=r"several rows of the query have the same k: k='\{'"):
        shop.made(table)
    assert shop.version() == 1
    shop.quick("DELETE FROM a WHERE v = 9")
    assert shop.made(table) == ("", 0)


def test_an_input_that_is_replaced_while_it_is_read(shops: Shops, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new table does not have the version that the pass has begun to read."""
    shop = shops(False)
    for _ in range(2):
        shop.quick("UPDATE a SET v = v + 1")
    table = shop.table(TOTALS)

    def drop() -> None:
        shop.quick("DROP TABLE a")

    def replace() -> None:
        drop()
        shop.create(feed=False)

    with moved(monkeypatch, *shop.computed, replace):
        assert shop.made(table) == ("the table is new", 1)
    with moved(monkeypatch, *shop.computed, drop), pytest.raises(TableMissing):
        shop.made(shop.table(RECODED))
    assert shop.version() == 1

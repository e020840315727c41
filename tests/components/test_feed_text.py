"""Text that is not UTF-8, and text that has the sign of replacement, come from the change feed as the table has them."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from ratify_lakehouse.components.strategies.table_passes import materialize_appended
from ratify_lakehouse.components.syncs.sync_declaration import SyncStrategy
from ratify_lakehouse.sql.table_query import TableName
from tests.components.declared_syncs import declared, erase, run, table
from tests.components.incremental_tables import declared_query, without_pictures
from tests.engines.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation", "no_previews")]

# The other values of a row, whose columns a query does not read.
_TYPES = {"INT": "1", "MAP<STRING, INT>": "map('k', 1)"}


class TextTable:
    """A table with text and a feed."""

    def __init__(self, lake: Lakehouse, other: str) -> None:
        self.lake, self.source, self.other = lake, f"from_{uuid4().hex[:10]}", _TYPES[other]
        feed = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
        lake.quick(
            f"CREATE TABLE ratify.bronze.{self.source} (id INT, v STRUCT<t: STRING>, other {other}) USING DELTA {feed}"
        )

    def insert(self, *numbers: int, text: str) -> None:
        # DuckDB has no text that is not UTF-8, nor do our own commits write maps.
        by = self.lake.quick if text.startswith("'") and self.other == _TYPES["INT"] else self.lake.run
        rows = (f"({number}, named_struct('t', {text}), {self.other})" for number in numbers)
        by(f"INSERT INTO ratify.bronze.{self.source} VALUES {', '.join(rows)}")

    def stored(self, name: str) -> list[tuple[int, str]]:
        rows = self.lake.run(f"SELECT id, hex(v.t) AS t FROM ratify.bronze.{name} ORDER BY id, t")
        return [(row["id"], row["t"]) for row in rows]


def appending(lake: Lakehouse, source: str) -> tuple[str, Callable[[], object]]:
    """A table of the strategy `append`, and its pass."""
    name = f"to_{uuid4().hex[:10]}"
    query = declared_query("bronze", name, f"SELECT id, v FROM bronze.{source}", [])
    return name, lambda: list(materialize_appended(lake.spark, query, TableName("bronze", source)))


def inserting(lake: Lakehouse, source: str) -> tuple[str, Callable[[], object]]:
    """A sync of the strategy append, and its pass."""
    name = f"to_{uuid4().hex[:10]}"
    sync = declared(name, SyncStrategy.APPEND, table(source))
    return name, lambda: run(lake, sync)


@pytest.mark.parametrize(
    ("taking", "passes"),
    [(appending, 1), *(pytest.param(taking, 2, marks=pytest.mark.long) for taking in (appending, inserting))],
)
def test_it_is_taken_as_it_is(
    bronze: Lakehouse,
    monkeypatch: pytest.MonkeyPatch,
    taking: Callable[[Lakehouse, str], tuple[str, Callable[[], object]]],
    passes: int,
) -> None:
    """After the first pass by another one; or by two, of which the second has text with the sign of replacement only."""
    without_pictures(monkeypatch)
    text = TextTable(bronze, "INT")
    name, take = taking(bronze, text.source)
    text.insert(1, text="CAST(X'FF' AS STRING)")
    take()
    text.insert(3, text="'gone'")
    text.insert(2, 2, text="CAST(X'61FE' AS STRING)")
    erase(bronze, f"ratify.bronze.{text.source}", 3)
    if passes > 1:
        take()
    text.insert(4, text="'\ufffd'")
    take()
    take()
    assert text.stored(name) == [(1, "FF"), (2, "61FE"), (2, "61FE"), (4, "EFBFBD")]


# Text that is not UTF-8 is taken as it is in the test above.
@pytest.mark.long
def test_the_feed_of_a_table_with_maps_is_all_that_there_is(bronze: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its versions cannot be compared, so that the sign of replacement stops nothing."""
    without_pictures(monkeypatch)
    text = TextTable(bronze, "MAP<STRING, INT>")
    name, take = appending(bronze, text.source)
    text.insert(1, text="'a'")
    take()
    text.insert(2, text="'\ufffd'")
    take()
    assert text.stored(name) == [(1, "61"), (2, "EFBFBD")]

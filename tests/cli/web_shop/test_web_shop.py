"""A web shop for a week, declared as a new user would: right rows, right numbers, and no red that is not a fault."""

from contextlib import ExitStack, closing
from decimal import Decimal
from pathlib import Path

import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from tests.cli.commands_in_project import CommandProject
from tests.cli.web_shop.shop_days import ASSETS, ShopDays
from tests.cli.web_shop.shop_files import at, customers, day, items, orders
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.engines.quick_tables import QuickTables

RUN = "ratify run bronze.customers bronze.items bronze.orders --downstream"
JUERGEN = {"id": 11, "name": "Jürgen Groß", "city": "Köln"}
ANN = {"id": 12, "name": "Ann Weiß", "city": "Bonn"}
CID = {"id": 13, "name": "Cid", "city": "Ulm"}


def euros(text: str) -> Decimal:
    return Decimal(text)


def test_its_declarations_are_short() -> None:
    lines = [line for file in ASSETS.rglob("*.*") for line in file.read_text().splitlines()]
    assert len(lines) <= 100


@pytest.mark.long
@pytest.mark.server
def test_a_week_of_the_shop(tmp_path: Path) -> None:
    with ExitStack() as stack:
        address = stack.enter_context(catalog_here(tmp_path / "catalog"))
        catalog = UnityCatalog(host=address.url, token=address.token)
        duckdb = stack.enter_context(closing(DuckDB(catalog=catalog, threads=1)))
        project = stack.enter_context(CommandProject(tmp_path / "shop", address))
        _week(ShopDays(project, QuickTables(duckdb)))


def _week(days: ShopDays) -> None:
    first = (1, 11, "S", "Lange Straße 7", euros("1234.50"), at(1, "09:00"))
    days.run(
        "ratify demo",
        orders(
            str(day(1)),
            first,
            (2, 12, "Übergröße", "Güterweg 1", euros("19.99"), at(1, "10:30")),
            (3, 11, "M", "Lange Straße 7", euros("-5.00"), at(1, "11:00")),
        ),
        customers(1, JUERGEN, ANN),
        items(1, (1, 1, "hat", 1, 1234.50), (2, 1, "sock", 2, 9.99), (2, 2, "bag", 0, 0.01)),
    )
    # The list of customers has not changed, and a size is unknown.
    days.run(
        RUN,
        orders(
            str(day(2)),
            (4, 12, "M", "Güterweg 1", euros("20.00"), at(2, "09:00")),
            (5, 13, "XXL", "Am Fluß 3", euros("7.50"), at(2, "23:59:59")),
        ),
        customers(2, JUERGEN, ANN),
        items(2, (4, 1, "hat", 2, 10.00), (5, 1, "sock", 1, 7.50)),
    )
    # The first day's orders are corrected under their name; an item of them is late.
    days.run(
        RUN,
        orders(
            str(day(1)),
            first,
            (2, 12, "L", "Güterweg 1", euros("19.99"), at(1, "10:30")),
            (3, 11, "M", "Lange Straße 7", euros("5.00"), at(1, "11:00")),
        ),
        orders(str(day(3)), (6, 14, "L", "Weg 1", euros("3.00"), at(3, "09:00"))),
        customers(3, JUERGEN, {**ANN, "city": "Münster"}, CID),
        items(3, (6, 1, "hat", 1, 3.00), (3, 1, "sock", 1, 5.00)),
    )
    # Late orders come with a new column, as do the other feeds; one is a later state of an order of the second day.
    days.run(
        RUN,
        orders(
            f"{day(1)} Nachzügler",
            (7, 12, "S", "Güterweg 1", euros("1.00"), at(1, "23:00"), "SOMMER"),
            (4, 12, "L", "Güterweg 1", euros("20.00"), at(2, "10:00"), None),
        ),
        customers(4, {**JUERGEN, "newsletter": True}, {**ANN, "city": "Münster", "newsletter": False}, CID),
        items(4, (7, 1, "pin", 1, 1.00, True), gift="BOOLEAN"),
    )
    # A file has a decimal point instead of a comma; another has a number in words, as its type has changed.
    bad = orders(
        str(day(5)), (8, 11, "M", "Lange Straße 7", euros("1234.50"), at(5, "09:00")), broken=("1.234,50", "1,234.50")
    )
    item = {"order_id": 8, "article": "hat"}
    worded = items(
        5,
        *((8, 1, "hat", "three", 1.00), (8, 2, "hat", "2", 1.5)),
        refused=True,
        rescued=[
            {**item, "position": 1, "quantity": None, "price": euros("1.00")},
            {**item, "position": 2, "quantity": 2, "price": euros("1.50")},
        ],
        quantity="VARCHAR",
        price="DOUBLE",
    )
    answer = days.run(RUN, bad, customers(5, JUERGEN, ANN), worded)
    for path in (bad.path, worded.path):
        assert f"(moved to _dead_letter/{path})" in " ".join(answer.err.split())
    # The one is corrected, the other taken as it is.
    days.run(f"ratify accept {worded.path} --rescue", worded, rescue=True)
    (rescued,) = [row["_rescued_data"] for row in days.read("bronze.items") if row["_rescued_data"]]
    assert '"quantity":"three"' in rescued
    days.run(RUN, orders(str(day(5)), (8, 11, "M", "Lange Straße 7", euros("1234.50"), at(5, "09:00"))))
    # Wider types of the same numbers fit.
    days.run(
        RUN, items(6, (8, 3, "cap", 4, 1.25), order_id="BIGINT", quantity="BIGINT", price="DOUBLE"), customers(6, JUERGEN)
    )
    # A day that is right is computed again; then one of which somebody has deleted rows.
    days.backfill(1)
    days.lose(2)

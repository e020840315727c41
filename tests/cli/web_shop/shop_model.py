"""The rows that each table of the shop holds and the numbers that each page shows, in plain Python."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from tests.cli.web_shop.shop_files import Row, ShopFile, day

SIZES = ("S", "M", "L", "Übergröße")
PARTITIONS = [day(number) for number in range(1, 8)]
FEEDS = ("customers", "items", "orders")
Rows = dict[Any, tuple[Any, ...]]
Tables = Mapping[str, Rows]


@dataclass
class WebShop:
    """The files that were landed, by what became of them.

    Attributes:
        held: The rows of each loaded file, by feed and path.
        contents: The bytes of each loaded file, by feed.
        refused: The files that wait for a correction.
        touched: Keys of the rows of files that were loaded or replaced since silver was computed, by feed.
    """

    held: dict[str, dict[str, ShopFile]] = field(default_factory=lambda: {feed: {} for feed in FEEDS})
    refused: dict[str, set[str]] = field(default_factory=lambda: {feed: set() for feed in FEEDS})
    touched: dict[str, set[Any]] = field(default_factory=lambda: {feed: set() for feed in FEEDS})

    def land(self, files: Iterable[ShopFile], *, rescue: bool = False) -> dict[str, dict[str, int]]:
        """Load files, and return the numbers of each feed's page."""
        numbers = {feed: dict.fromkeys(_OF_FILES, 0) for feed in FEEDS}
        for file in files:
            held, page = self.held[file.feed], numbers[file.feed]
            page["files"] += 1
            self.refused[file.feed].discard(file.path)
            if file.refused and not rescue:
                page["files refused"] += 1
                self.refused[file.feed].add(file.path)
            elif any(file.content == other.content for other in held.values()):
                page["files repeated"] += 1
            else:
                page["files loaded"] += 1
                if before := held.pop(file.path, None):
                    page["files withdrawn"] += 1
                    page["rows withdrawn"] += len(before.rows)
                for each in (before, file):
                    self.touched[file.feed] |= {_KEYS[file.feed](row) for row in (each.rows if each else ())}
                held[file.path] = file
                page["rows in"] += len(file.rows)
        for page in numbers.values():
            page["rows out"] = page["rows in"]
            page["rows added"] = page["rows in"] - page["rows withdrawn"]
            if not page["rows withdrawn"]:
                del page["rows withdrawn"]
        return numbers

    def landed(self, feed: str) -> list[Row]:
        """The rows of a bronze table."""
        return [
            {**row, "_source_file": path, "_source_row": number}
            for path, file in self.held[feed].items()
            for number, row in enumerate(file.rows, 1)
        ]

    @property
    def tables(self) -> Tables:
        """The rows of each table, by their keys."""
        bronze = {feed: self.landed(feed) for feed in FEEDS}
        orders, items, customers = _orders(bronze["orders"]), _items(bronze["items"]), _customers(bronze["customers"])
        return {
            **{
                f"bronze.{feed}": {(r["_source_file"], r["_source_row"]): (*r.values(),) for r in bronze[feed]}
                for feed in FEEDS
            },
            "silver.orders": orders,
            "silver.orders_quarantine": {
                (r["_source_file"], r["_source_row"]): ("amount_is_positive",) for r in bronze["orders"] if not is_sold(r)
            },
            "silver.items": items,
            "silver.items_quarantine": {
                _KEYS["items"](r): ("quantity_is_positive",) for r in bronze["items"] if not is_there(r)
            },
            "silver.customers": customers,
            "gold.sales_by_day": _by_day(orders, items),
            "gold.sales_by_customer": _by_customer(orders, customers),
        }


_OF_FILES = (
    *("files", "files loaded", "files repeated", "files refused", "files withdrawn"),
    *("rows in", "rows withdrawn"),
)
_KEYS = {
    "orders": lambda row: row["bestellnr"],
    "items": lambda row: (row["order_id"], row["position"]),
    "customers": lambda row: row["id"],
}


def is_sold(row: Row) -> bool:
    """Return whether an order fulfils the expectation of its amount."""
    return row["betrag"] > 0


def is_there(row: Row) -> bool:
    """Return whether an item fulfils the expectation of its quantity."""
    return row["quantity"] is not None and row["quantity"] > 0


def _orders(rows: list[Row]) -> Rows:
    found = Rows()
    for row in sorted(rows, key=lambda r: (r["bestellt_am"], r["_source_file"], r["_source_row"])):
        if is_sold(row):
            of = (row["bestellnr"], row["kunde"], row["grosse"], row["strasse"], row["betrag"], row["bestellt_am"])
            found[row["bestellnr"]] = (*of, row["bestellt_am"].date(), row["_source_file"], row["_source_row"])
    return found


def _items(rows: list[Row]) -> Rows:
    names = ("order_id", "position", "article", "quantity", "price")
    return {_KEYS["items"](row): tuple(row[name] for name in names) for row in rows if is_there(row)}


def _customers(rows: list[Row]) -> Rows:
    """The versions of customers: one begins where a list has other values than the one before it."""
    found, lists = Rows(), defaultdict[Any, list[Row]](list)
    for row in rows:
        lists[row["_source_file"].split("/")[1].removesuffix(".jsonl")].append(row)
    current = dict[Any, tuple[Any, Any]]()
    for listed in sorted(lists):
        for row in lists[listed]:
            key, values = row["id"], (row["name"], row["city"])
            since, before = current.get(key, (None, None))
            if before != values:
                if since:
                    found[key, since] = (*found[key, since][:4], date.fromisoformat(listed), False)
                current[key] = listed, values
                found[key, listed] = (key, *values, date.fromisoformat(listed), None, True)
    return found


def _by_day(orders: Rows, items: Rows) -> Rows:
    of = defaultdict[Any, list[tuple[Any, ...]]](list)
    for item in items.values():
        of[item[0]].append(item)
    groups = defaultdict[Any, list[Any]](list)
    for order in orders.values():
        groups[order[6], order[2]].append(order[0])
    return {
        key: (
            *key,
            len(numbers),
            sum(found) if (found := [each[3] for number in numbers for each in of[number]]) else None,
            sum(found) if (found := [each[3] * each[4] for number in numbers for each in of[number]]) else None,
        )
        for key, numbers in groups.items()
    }


def _by_customer(orders: Rows, customers: Rows) -> Rows:
    cities = {version[0]: version[2] for version in customers.values() if version[-1]}
    groups = defaultdict[Any, list[Any]](list)
    for order in orders.values():
        groups[order[1]].append(order[4])
    return {key: (key, cities.get(key), len(amounts), sum(amounts)) for key, amounts in groups.items()}


def changes(before: Rows, after: Rows) -> dict[str, int]:
    """Return the numbers of a page for what a run changed in a table."""
    inserted, deleted = len(after.keys() - before.keys()), len(before.keys() - after.keys())
    updated = sum(before[key] != after[key] for key in before.keys() & after.keys())
    return {
        "dagster/row_count": len(after),
        "rows added": inserted - deleted,
        "rows inserted": inserted,
        "rows updated": updated,
        "rows deleted": deleted,
    }


def changed_days(before: Tables, after: Tables) -> list[Any]:
    """Return the days of which a row of the inputs of `gold.sales_by_day` has changed."""
    days = set[Any]()
    old, new = before["silver.orders"], after["silver.orders"]
    for key in old.keys() | new.keys():
        if old.get(key) != new.get(key):
            days |= {rows[key][6] for rows in (old, new) if key in rows}
    for key in before["silver.items"].keys() | after["silver.items"].keys():
        if before["silver.items"].get(key) != after["silver.items"].get(key):
            days |= {rows[key[0]][6] for rows in (old, new) if key[0] in rows}
    return sorted(days & {*PARTITIONS})

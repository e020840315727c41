"""A project with the tables of the shop, day after day: rows and pages are compared with the model after each command."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ratify_lakehouse.wording import counted
from tests.cli.commands_in_project import Answer, CommandProject
from tests.cli.web_shop.shop_files import ShopFile, day
from tests.cli.web_shop.shop_model import FEEDS, PARTITIONS, SIZES, WebShop, changed_days, changes, is_sold, is_there
from tests.cli.web_shop.shop_pages import ShopPages
from tests.engines.quick_tables import QuickTables

ASSETS = Path(__file__).parent / "assets"
_ROWS = {
    "silver.orders": (
        "order_id",
        "customer_id",
        "size",
        "street",
        "amount",
        "ordered_at",
        "day",
        "_source_file",
        "_source_row",
    ),
    "silver.orders_quarantine": ("_source_file", "_source_row", "rule"),
    "silver.items": ("order_id", "position", "article", "quantity", "price"),
    "silver.items_quarantine": ("order_id", "position", "rule"),
    "silver.customers": ("customer_id", "name", "city", "valid_from", "valid_to", "current"),
    "gold.sales_by_day": ("day", "size", "orders", "pieces", "value"),
    "gold.sales_by_customer": ("customer_id", "city", "orders", "amount"),
}
_CHANGES = ("rows added", "rows inserted", "rows updated", "rows deleted")
_OF_LOADS = {"_loaded_at", "_batch_id", "_rescued_data"}
_OF_EACH = ("table_is_intact", "maintained_as_declared")
_CHECKS = {
    *{(f"bronze.{feed}", name) for feed in FEEDS for name in (*_OF_EACH, "files_accepted", "files_loaded_once")},
    *{(table, name) for table in _ROWS for name in (*_OF_EACH, "written_as_reported")},
    *{
        ("silver.orders", name)
        for name in ("amount_is_positive", "size_is_known", "one_row_for_each_key", "rows_reconciled")
    },
    *{("silver.items", "quantity_is_positive"), ("gold.sales_by_day", "partitions_complete")},
}
_PERSONAL = ("Jürgen", "Ann ", "Straße 7", "Güterweg", "Am Fluß")


class ShopDays:
    """The project, its tables, and what they are to be."""

    def __init__(self, project: CommandProject, tables: QuickTables) -> None:
        shutil.copytree(ASSETS, project.folder / "assets", dirs_exist_ok=True)
        self.project, self.shop = project, WebShop()
        self.pages = ShopPages(project.folder / ".ratify" / "dagster")
        self._tables = tables
        self._before = self.shop.tables

    def write(self, files: Iterable[ShopFile]) -> None:
        """Let files land."""
        for file in files:
            path = self.project.landing / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)

    def run(self, command: str, *files: ShopFile, rescue: bool = False) -> Answer:
        """Let files land, run a command, and compare all tables and pages that it made."""
        if not rescue:
            self.write(files)
        answer = self.project.run(command)
        assert self.pages.turn() == [], answer.err
        assert answer.code == 0, answer.err
        loads = self.shop.land(files, rescue=rescue)
        for feed in FEEDS:
            if f"bronze.{feed}" in self.pages.made:
                self._compare_load(feed, loads[feed])
        if "silver.orders" in self.pages.made:
            self._compare_computed()
        self.compare_rows()
        self.compare_checks()
        assert not [text for text in self.pages.texts for each in _PERSONAL if each in text]
        return answer

    def backfill(self, number: int) -> None:
        """Compute a day again that is right: nothing changes."""
        answer = self.project.run(f"ratify reprocess {day(number)}")
        assert (answer.code, self.pages.turn()) == (0, []), answer.err
        nothing = dict.fromkeys(_CHANGES, 0)
        for table in self.pages.made:
            same(table, _of(self.pages.numbers(table), nothing), nothing)
        assert set(self.pages.made) == {*_ROWS}
        self.compare_rows()
        self.compare_checks()

    def lose(self, number: int) -> None:
        """Let somebody delete the sales of a day: checks say so, and computing that day again brings the rows back."""
        by_day = "gold.sales_by_day"
        lost = sum(key[0] == day(number) for key in self._before[by_day])
        self._tables.run(f"DELETE FROM {by_day} WHERE day = DATE'{day(number)}'")
        red = (by_day, "written_as_reported"), (by_day, "partitions_complete")
        check, repair = (self.project.run(f"ratify {what}") for what in (f"check {by_day}", f"reprocess {day(number)}"))
        assert (check.code, "no run of this table reported: version" in " ".join(check.err.split())) == (1, True)
        assert (repair.code, "The tables are computed, but checks failed" in " ".join(repair.err.split())) == (1, True)
        assert self.pages.turn() == []
        assert self.pages.numbers(by_day)["rows inserted"] == lost > 0
        self.compare_rows()
        self.compare_checks(*red)
        # It was somebody else's commit; the next run begins after it.
        again = self.project.run(f"ratify run {by_day}")
        assert (again.code, self.pages.turn()) == (0, []), again.err
        self.compare_rows()
        self.compare_checks()

    def compare_rows(self) -> None:
        """Compare the rows of all tables that the last runs computed."""
        for feed in FEEDS:
            found = [{name: row[name] for name in row if name not in _OF_LOADS} for row in self.read(f"bronze.{feed}")]
            same(feed, _sorted(map(_without_nulls, found)), _sorted(map(_without_nulls, self.shop.landed(feed))))
        for table, columns in _ROWS.items():
            rows = self.read(table)
            if table == "silver.items_quarantine":
                rows = [{**row, **json.loads(row["row"])} for row in rows]
            expected = self._before[table]
            if table.endswith("_quarantine"):
                expected = {key: (*key, *row) for key, row in expected.items()}
            same(table, _sorted(tuple(row[name] for name in columns) for row in rows), _sorted(expected.values()))

    def read(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table, by its log alone."""
        return self._tables.run(f"SELECT * FROM {table}")

    def compare_checks(self, *red: tuple[str, str]) -> None:
        """Check that each check was evaluated, and that those fail that have a reason, and these."""
        before, orders = self._before, self.shop.landed("orders")
        reasons = {
            ("silver.orders", "amount_is_positive"): bool(before["silver.orders_quarantine"]),
            ("silver.orders", "size_is_known"): any(row[2] not in SIZES for row in before["silver.orders"].values()),
            ("silver.items", "quantity_is_positive"): bool(before["silver.items_quarantine"]),
            **{(f"bronze.{feed}", "files_accepted"): bool(self.shop.refused[feed]) for feed in FEEDS},
        }
        same("checks", {*self.pages.checks}, {*_CHECKS})
        same("red checks", self.pages.red, {check for check, failing in reasons.items() if failing} | {*red})
        accepted, duplicates = (
            len(before["silver.orders"]),
            len(orders) - len(before["silver.orders"]) - sum(not is_sold(row) for row in orders),
        )
        assert self.pages.checks["silver.orders", "rows_reconciled"].description == (
            f"{counted(len(orders), 'row')} of the input = {accepted} in the table + "
            f"{len(before['silver.orders_quarantine'])} in quarantine + {counted(duplicates, 'duplicate')}."
        )
        for feed in FEEDS:
            compared = self.pages.checks[f"bronze.{feed}", "files_loaded_once"].metadata
            assert compared["rows in files"] == compared["rows in bronze"]

    def _compare_load(self, feed: str, expected: dict[str, int]) -> None:
        table, rows = f"bronze.{feed}", self.shop.landed(feed)
        shown = self.pages.numbers(table)
        expected = {**expected, "dagster/row_count": len(rows)}
        same(table, _of(shown, expected), expected)
        assert ("rows withdrawn" in shown) == ("rows withdrawn" in expected)
        self._compare_preview(table, len(rows))
        self._before = {**self._before, table: self.shop.tables[table]}

    def _compare_computed(self) -> None:
        before, after = self._before, self.shop.tables
        first = not before["silver.orders"]
        for table in _ROWS:
            shown, expected = self.pages.numbers(table), changes(before[table], after[table])
            same(table, _of(shown, expected), expected)
            self._compare_preview(table, len(after[table]))
        self._compare_flow("orders", is_sold, "amount_is_positive", first=first)
        self._compare_flow("items", is_there, "quantity_is_positive", first=first)
        whole = self.pages.numbers("gold.sales_by_customer")
        assert whole["rows in"] == whole["rows out"] == len(after["gold.sales_by_customer"])
        days = PARTITIONS if first else changed_days(before, after)
        rows = {str(each): sum(key[0] == each for key in after["gold.sales_by_day"]) for each in days}
        by_day = self.pages.numbers("gold.sales_by_day")
        assert (by_day["partitions computed"], by_day["rows in no partition"]) == (len(days), 0)
        assert by_day["rows in"] == by_day["rows out"] == sum(rows.values())
        assert self.pages.partitions("gold.sales_by_day").items() <= rows.items()
        self._before = after

    def _compare_flow(self, feed: str, fulfils: Any, expectation: str, *, first: bool) -> None:
        """Compare what became of the rows that silver computed: those of the keys that files have touched."""
        touched, table = self.shop.touched[feed], f"silver.{feed}"
        rows = [row for row in self.shop.landed(feed) if _key(feed, row) in touched]
        good = [row for row in rows if fulfils(row)]
        kept = len({_key(feed, row) for row in good})
        expected = {"rows in": len(rows), "rows out": kept, "rows quarantined": len(rows) - len(good)}
        if feed == "orders":
            expected["duplicates"] = len(good) - kept
        stored = sum(not fulfils(row) for row in self.shop.landed(feed))
        shown = self.pages.numbers(table)
        same(table, _of(shown, expected), expected)
        assert shown["rows in quarantine"] == stored
        found = {name: value.value for name, value in self.pages.checks[table, expectation].metadata.items()}
        assert (found["rows"], found["failed"]) == (len(rows), len(rows) - len(good))
        assert first or found["failed in all"] == stored
        touched.clear()

    def _compare_preview(self, table: str, rows: int) -> None:
        shown = self.pages.numbers(table)["preview"]
        assert len(shown.records) == min(rows, 5), table


def _key(feed: str, row: Any) -> Any:
    return row["bestellnr"] if feed == "orders" else (row["order_id"], row["position"])


def _of(shown: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    return {name: shown.get(name) for name in expected}


def _without_nulls(row: Any) -> dict[str, Any]:
    """The values that a row has: which columns the table got by later files is not the rows' subject."""
    return {name: value for name, value in row.items() if value is not None}


def _sorted(rows: Iterable[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: str(sorted(row.items()) if isinstance(row, dict) else row))


def same(what: str, found: Any, expected: Any) -> None:
    """Check that something is as expected."""
    assert found == expected, f"{what}\n   found {found}\nexpected {expected}"

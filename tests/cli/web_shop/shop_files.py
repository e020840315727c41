"""The files that the shop writes, each with the rows that bronze is to have of it."""

import datetime as dt
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from ratify_lakehouse.sql.duckdb_sql import literal

Row = Mapping[str, Any]
DAY_1 = dt.date(2026, 3, 1)
_ORDER = ("bestellnr", "kunde", "grosse", "strasse", "betrag", "bestellt_am", "gutschein")
_HEADER = ("Bestellnr", "Kunde", "Größe", "Straße", "Betrag (€)", "Bestellt am", "Gutschein")
_ITEM = {"order_id": "INTEGER", "position": "INTEGER", "article": "VARCHAR", "quantity": "INTEGER", "price": "DECIMAL(8,2)"}


@dataclass(frozen=True)
class ShopFile:
    """A file that the shop writes.

    Attributes:
        path: In the landing zone; its folder is the feed.
        content: Its bytes.
        rows: What bronze is to have of it.
        refused: Whether it cannot be loaded as it is.
    """

    path: str
    content: bytes
    rows: Sequence[Row]
    refused: bool = False

    @property
    def feed(self) -> str:
        """The name of its bronze table."""
        return self.path.split("/")[0]


def day(number: int) -> dt.date:
    """Return a day of the shop, from 1 on."""
    return DAY_1 + dt.timedelta(days=number - 1)


def at(number: int, time: str) -> dt.datetime:
    """Return a time of a day of the shop, which the files have without a zone."""
    return dt.datetime.combine(day(number), dt.time.fromisoformat(time), dt.UTC)


def orders(name: str, *rows: tuple[Any, ...], broken: tuple[str, str] | None = None) -> ShopFile:
    """Return a file of orders, as a German spreadsheet writes it; `broken` is a text in it, and what is there instead."""
    text = "".join(";".join(map(_in_csv, row)) + "\n" for row in (_HEADER[: len(rows[0])], *rows))
    kept = [dict(zip(_ORDER, row, strict=False)) for row in rows]
    return ShopFile(f"orders/{name}.csv", text.replace(*(broken or ("", ""))).encode(), kept, refused=bool(broken))


def _in_csv(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))
    if isinstance(value, dt.datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return "" if value is None else str(value)


def customers(number: int, *rows: Row) -> ShopFile:
    """Return the list of a day: all customers that there are."""
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return ShopFile(f"customers/{day(number)}.jsonl", lines.encode(), rows)


def items(number: int, *rows: tuple[Any, ...], refused: bool = False, rescued: Sequence[Row] = (), **types: str) -> ShopFile:
    """Return the items of a day; `types` are those of this file, of new columns too, and `rescued` what a rescue leaves."""
    columns = dict(list({**_ITEM, **types}.items())[: len(rows[0])])
    values = ", ".join(f"({', '.join(map(_in_sql, row))})" for row in rows)
    cast = ", ".join(f"CAST({name} AS {type_}) AS {name}" for name, type_ in columns.items())
    with tempfile.TemporaryDirectory(prefix="ratify-") as folder, duckdb.connect() as con:
        file = Path(folder, "items.parquet")
        con.execute(f"COPY (SELECT {cast} FROM (VALUES {values}) AS t({', '.join(columns)})) TO {literal(str(file))}")
        content = file.read_bytes()
    kept = rescued or [dict(zip(columns, map(_exact, row), strict=True)) for row in rows]
    return ShopFile(f"items/{day(number)}.parquet", content, kept, refused)


def _in_sql(value: Any) -> str:
    return literal(value) if isinstance(value, str) else str(value)


def _exact(value: Any) -> Any:
    return Decimal(str(value)) if isinstance(value, float) else value

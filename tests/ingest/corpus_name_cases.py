"""The corpus: files whose fields have other names than the columns that they fill."""

from decimal import Decimal

from tests.ingest.corpus_case import ADDING, RENAMING, Case, IngestedFile, RefusedFile

NAME_CASES = (
    Case(
        "csv with names in other styles",
        "a.csv",
        b"ID,Name, Amount \n1,a,2.50\n",
        IngestedFile(((1, "a", Decimal("2.50")),)),
        ADDING,
    ),
    Case(
        "csv with two names of one column",
        "a.csv",
        b"id,Unit Price,unitPrice\n1,2,3\n",
        RefusedFile("'Unit Price' and 'unitPrice' are both the table's column unit_price"),
        ADDING,
    ),
    Case(
        "csv with renamed columns",
        "a.csv",
        "Order ID,顧客,Amount (EUR)\n1,a,2.50\n".encode(),
        IngestedFile(((1, "a", Decimal("2.50")),)),
        RENAMING,
    ),
    Case(
        "csv with a renamed column and one of its name",
        "a.csv",
        b"Order ID,id\n1,2\n",
        RefusedFile("'Order ID' and 'id' are both the table's column id"),
        RENAMING,
    ),
    Case(
        "json lines with renamed columns",
        "a.jsonl",
        '{"Order ID": 1, "顧客": "a"}\n{"ORDER ID": 2, "amount (eur)": 3, "more": true}\n'.encode(),
        IngestedFile(((1, "a", None), (2, None, Decimal("3.00"))), {2: {"more": True}}),
        RENAMING,
    ),
    Case(
        "json lines with two keys of one column",
        "a.jsonl",
        b'{"Unit Price": 1}\n{"unitPrice": 2}\n',
        RefusedFile("are both the table's column unit_price"),
        ADDING,
    ),
)

"""The corpus: numbers of CSV files, as countries write them."""

from decimal import Decimal

from ratify_lakehouse.ingest.file_source import CsvDialect
from tests.ingest.corpus_case import FAILING, RESCUING, Case, IngestedFile, RefusedFile, with_

NUMBER_CASES = (
    Case(
        "csv with decimal commas",
        "a.csv",
        b"id;name;amount\n1.234;1.234,5;1.234.567,50\n2;x;1,5\n",
        IngestedFile(((1234, "1.234,5", Decimal("1234567.50")), (2, "x", Decimal("1.50")))),
        with_(RESCUING, csv=CsvDialect(";", decimal=",", thousands=".")),
    ),
    Case(
        "csv with decimal commas where points are declared, and the other way round",
        "a.csv",
        b'id,name,amount\n1,a,"1.234,5"\n2,b,"1,5"\n3,c,1234.5\n',
        IngestedFile(
            ((1, "a", None), (2, "b", None), (3, "c", Decimal("1234.50"))), {1: {"amount": "1.234,5"}, 2: {"amount": "1,5"}}
        ),
    ),
    Case(
        "csv with decimal points where commas are declared",
        "a.csv",
        b"id;name;amount\n1;a;1234.5\n2;b;1,234.5\n3;c;1234,5\n",
        IngestedFile(
            ((1, "a", None), (2, "b", None), (3, "c", Decimal("1234.50"))),
            {1: {"amount": "1234.5"}, 2: {"amount": "1,234.5"}},
        ),
        with_(RESCUING, csv=CsvDialect(";", decimal=",", thousands=".")),
    ),
    Case(
        "csv with a decimal comma that is not declared",
        "a.csv",
        b'id,name,amount\n1,Ada,"1.234,5"\n',
        RefusedFile("column amount: '1.234,5' is not of type decimal"),
        FAILING,
    ),
)

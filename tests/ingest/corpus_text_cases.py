"""The corpus: CSV files."""

from dataclasses import replace as with_
from decimal import Decimal

from ratify_lakehouse.ingest.file_source import CsvDialect
from tests.ingest.corpus_case import (
    ADDING,
    BOTH,
    CSV,
    FAILING,
    HIDING,
    NESTED,
    REQUIRING,
    RESCUING,
    SEMICOLONS,
    STRICT,
    TYPES,
    UNICODE,
    A,
    AddsColumns,
    B,
    Case,
    IngestedFile,
    RefusedFile,
    csv_file,
    encoded,
)

CSV_CASES = (
    Case("csv", "a.csv", CSV, BOTH),
    Case("csv with a byte order mark", "a.csv", b"\xef\xbb\xbf" + CSV, BOTH),
    Case("csv with CRLF", "a.csv", CSV.replace(b"\n", b"\r\n"), BOTH),
    Case("csv with upper-case suffix", "A.CSV", CSV, BOTH),
    Case("csv with upper-case header", "a.csv", CSV.replace(b"id,name", b"ID,Name"), BOTH),
    Case("csv with columns in another order", "a.csv", b"amount,id,name\n1.50,1,Ada\n,2,Bob\n", BOTH),
    Case("csv that lacks a column", "a.csv", b"id,name\n1,Ada\n", IngestedFile(((1, "Ada", None),))),
    Case("csv with a quoted line end", "a.csv", csv_file('1,"A\nda, ""x""",1.50'), IngestedFile(((1, 'A\nda, "x"', A[2]),))),
    Case("csv with a quoted header", "a.csv", b'"id","name","amount"\n1,Ada,1.50\n2,Bob,\n', BOTH),
    Case("csv with a NUL in a value", "a.csv", csv_file("1,A\0da,1.50"), IngestedFile(((1, "A\0da", A[2]),))),
    Case("csv with blank lines", "a.csv", CSV.replace(b"1.50\n", b"1.50\n\n") + b"\n", BOTH),
    Case("csv with a header alone", "a.csv", csv_file(), IngestedFile(())),
    Case("csv of zero bytes", "a.csv", b"", RefusedFile("zero bytes; land it again")),
    Case("csv cut off in a line", "a.csv", CSV[:-3], RefusedFile("cut off: it has no line end; land the whole file")),
    Case("csv cut off in a quote", "a.csv", csv_file('1,"Ada'), RefusedFile("not closed; double the quotes")),
    Case(
        "csv with a row too wide", "a.csv", csv_file("1,Ada,1.50", "2,Bob,3,4"), RefusedFile("line 3: .* number of columns")
    ),
    Case("csv with a row too narrow", "a.csv", csv_file("1,Ada,1.50", "2,Bob"), RefusedFile("line 3: .* number of columns")),
    Case("csv with one name twice", "a.csv", b"id,name,ID\n1,Ada,2\n", RefusedFile("'id' and 'ID'; .* rename one")),
    Case(
        "csv of lines that end in two ways", "a.csv", csv_file("1,Ada,3\r", "2,Bob,4"), RefusedFile("end in different ways")
    ),
    Case(
        "csv with a line of 3 MiB",
        "a.csv",
        csv_file("1," + "x" * (3 << 20) + ",1"),
        RefusedFile("line 2: .* longer than 2,097"),
    ),
    Case(
        "csv with a record of 3 MiB",
        "a.csv",
        csv_file('1,"' + "xxx\n" * (3 << 18) + '",1'),
        RefusedFile("longer than 2,097,152"),
    ),
    Case("csv with a header without end", "a.csv", b"x" * 70_000 + b"\n", RefusedFile("first line is longer than 65,536")),
    Case("csv of random bytes", "a.csv", bytes(range(256)) * 40 + b"\n", RefusedFile("UTF-16")),
    Case(
        "csv of text without a header",
        "a.csv",
        b"Dear all,\nthis is no table.\n",
        RefusedFile("none of its columns|number of col"),
    ),
    Case("csv that is not UTF-8", "a.csv", UNICODE.encode("cp1250"), RefusedFile("not UTF-8; .* declare its encoding")),
    Case(
        "csv that is not UTF-8 in a new column",
        "a.csv",
        b"id,name,new\n1,a,\xff\n",
        RefusedFile("not UTF-8; .* declare its encoding"),
        ADDING,
    ),
    Case("csv whose header is not UTF-8", "a.csv", "id,größe\n1,2\n".encode("latin-1"), RefusedFile("header is not UTF-8")),
    Case("csv that is UTF-16", "a.csv", UNICODE.encode("utf-16"), RefusedFile("is UTF-16; land it as UTF-8, or declare")),
    Case(
        "csv that is UTF-16 without a mark", "a.csv", UNICODE.encode("utf-16-le"), RefusedFile("is UTF-16; land it as UTF-8")
    ),
    Case(
        "csv declared as UTF-16",
        "a.csv",
        UNICODE.encode("utf-16"),
        IngestedFile(((1, "Žofie Ünal €", A[2]),)),
        encoded("utf-16"),
    ),
    Case(
        "csv declared as Windows-1250",
        "a.csv",
        UNICODE.encode("cp1250"),
        IngestedFile(((1, "Žofie Ünal €", A[2]),)),
        encoded("cp1250"),
    ),
    Case(
        "csv declared as Latin-1",
        "a.csv",
        "id,name\n1,Zoë\n".encode("latin-1"),
        IngestedFile(((1, "Zoë", None),)),
        encoded("latin-1"),
    ),
    Case(
        "csv that is not as declared", "a.csv", b"\xff\xfe" + CSV, RefusedFile("not utf-16 .*; declare"), encoded("utf-16")
    ),
    Case(
        "csv in a dialect",
        "a.csv",
        b"id;name;amount\n1;'A;d''a';1.50\nNA;\\N;\n",
        IngestedFile(((1, "A;d'a", A[2]), (None,) * 3)),
        SEMICOLONS,
    ),
    Case(
        "csv whose first line names the delimiter for a spreadsheet",
        "a.csv",
        b"sep=;\r\nid;name\r\n1;a\r\n",
        RefusedFile("first line 'sep=;' names the delimiter for a spreadsheet; remove the line, .* delimiter ';'"),
    ),
    Case(
        "csv without a header line whose first line names the delimiter",
        "a.csv",
        b'"sep=,"\n1,Ada,1.50\n',
        RefusedFile("names the delimiter for a spreadsheet; remove the line"),
        with_(RESCUING, header=("id", "name", "amount"), csv=CsvDialect(header=False)),
    ),
    Case(
        "csv whose lines end with delimiters",
        "a.csv",
        b"id,name,amount,,\n1,a,2.50,,\n",
        RefusedFile("a column without a name .does the header end with a delimiter, as spreadsheets write it"),
        FAILING,
    ),
    Case(
        "csv whose lines end with delimiters, and nothing is lost",
        "a.csv",
        b"id,name,amount,,\n1,a,2.50,,\n2,b,,,x\n",
        IngestedFile(((1, "a", Decimal("2.50")), (2, "b", None)), {2: {"": "x"}}),
    ),
    Case(
        "csv whose rows alone end with delimiters",
        "a.csv",
        b"id,name,amount\n1,a,2.50,,,\n",
        IngestedFile(((1, "a", Decimal("2.50")),)),
    ),
    Case(
        "csv whose header alone ends with a delimiter",
        "a.csv",
        b"id,name,amount,\n1,a,2.50\n",
        RefusedFile("line 2: a line has another number of columns .* and end no line with one"),
    ),
    Case("csv in another dialect", "a.csv", CSV, RefusedFile("none of its columns"), SEMICOLONS),
    Case(
        "csv without a header line",
        "a.csv",
        b"1,Ada,1.50\n2,Bob,\n",
        BOTH,
        with_(RESCUING, header=("id", "name", "amount"), csv=CsvDialect(header=False)),
    ),
    Case(
        "csv with values that do not fit",
        "a.csv",
        csv_file("one,Ada,1.50", "1.5,Bob,1.505", "9223372036854775808,Eve,12345678901.00", "0x1F,Dan,1e3", "4,Zoe,5"),
        IngestedFile(
            (
                (None, "Ada", A[2]),
                (None, "Bob", None),
                (None, "Eve", None),
                (None, "Dan", None),
                (4, "Zoe", Decimal("5.00")),
            ),
            {
                1: {"id": "one"},
                2: {"id": "1.5", "amount": "1.505"},
                3: {"id": "9223372036854775808", "amount": "12345678901.00"},
                4: {"id": "0x1F", "amount": "1e3"},
            },
        ),
    ),
    Case(
        "csv with a value that does not fit, and nowhere to rescue it",
        "a.csv",
        csv_file("1,Ada,1.50", "two,Bob,3"),
        RefusedFile("row 2: column id: 'two' is not of type bigint; fix it, or declare `rescue: true`"),
        FAILING,
    ),
    Case(
        "csv with a personal value that does not fit, and nowhere to rescue it",
        "a.csv",
        csv_file("1,Ada,1.50", "two,Bob,3"),
        RefusedFile("row 2: column id: '…' is not of type bigint; fix it, or declare `rescue: true`"),
        HIDING,
    ),
    Case(
        "csv without a value that must be",
        "a.csv",
        csv_file("1,Ada,", ",Bob,"),
        RefusedFile("row 2: column id must have a value"),
        REQUIRING,
    ),
    Case(
        "csv without a column that must be",
        "a.csv",
        b"name\nAda\n",
        RefusedFile("row 1: column id must have a value"),
        REQUIRING,
    ),
    Case(
        "csv with new columns, rescued",
        "a.csv",
        b'id,name,amount,Note "x",more\n1,Ada,1.50,"say ""hi""",\n2,Bob,,,\n',
        IngestedFile((A, B), {1: {'Note "x"': 'say "hi"'}}),
    ),
    Case(
        "csv with new columns, refused", "a.csv", b"id,more\n1,2\n", RefusedFile("table lacks columns .*: more; "), FAILING
    ),
    Case(
        "csv with new columns, added",
        "a.csv",
        b"id,n,x,day,at,ok,zip,empty,two words\n1,2,1.5,2024-01-31,2024-01-31T10:00:00Z,true,01234,,a\n"
        b"2,3,2,2024-02-01,,FALSE,1,,b\n",
        AddsColumns(
            {
                "n": "bigint",
                "x": "double",
                "day": "date",
                "at": "timestamp",
                "ok": "boolean",
                "zip": "string",
                "empty": "string",
                "two_words": "string",
            }
        ),
        ADDING,
    ),
    Case(
        "csv with a new column that cannot be added",
        "a.csv",
        "id,名前\n1,a\n".encode(),
        IngestedFile(((1, None, None),), {1: {"名前": "a"}}),
        ADDING,
    ),
    Case(
        "csv whose last line has no line end, which is accepted",
        "a.csv",
        b"id,name,amount\n1,a,2.50\n2,b,3",
        IngestedFile(((1, "a", Decimal("2.50")), (2, "b", Decimal("3.00")))),
        with_(FAILING, last_line_open=True),
    ),
    Case(
        "csv with our own columns",
        "a.csv",
        b"id,_batch_id\n1,x\n",
        IngestedFile(((1, None, None),), {1: {"_batch_id": "x"}}),
    ),
    Case(
        "csv with too many new columns",
        "a.csv",
        ",".join(["id", *(f"c{n}" for n in range(101))]).encode() + b"\n",
        RefusedFile("101 columns"),
        ADDING,
    ),
    Case(
        "csv of every type",
        "a.csv",
        b"i,d,f,b,day,at,raw\n"
        b" 1 ,1e3,0.5,TRUE,2024-01-31,2024-01-31 10:00:00+02:00,AP8=\n"
        b"-7,NaN,-inf,false,2024-1-1,2024-01-31 10:00,\n"
        b"2147483648,1e400,1_0,yes,2024-01-31 10:00,infinity,!\n",
        IngestedFile(
            (
                (1, 1000.0, 0.5, True, "2024-01-31", "2024-01-31 08:00:00+00", b"\0\xff"),
                (-7, float("nan"), float("-inf"), False, "2024-01-01", "2024-01-31 10:00:00+00", None),
                (None,) * 7,
            ),
            {
                3: {
                    "i": "2147483648",
                    "d": "1e400",
                    "f": "1_0",
                    "b": "yes",
                    "day": "2024-01-31 10:00",
                    "at": "infinity",
                    "raw": "!",
                }
            },
        ),
        TYPES,
    ),
    Case(
        "csv with texts that are no numbers, or more than a number holds",
        "a.csv",
        b"i,d,f\n02134,12345678901234567.89,16777217\n+4919,1e-400,0.123456789\n-0,02134.5,1e39\n0,+1.5,-.5\n",
        IngestedFile(
            ((None,) * 7, (None,) * 7, (0, *[None] * 6), (0, None, -0.5, *[None] * 4)),
            {
                1: {"i": "02134", "d": "12345678901234567.89", "f": "16777217"},
                2: {"i": "+4919", "d": "1e-400", "f": "0.123456789"},
                3: {"d": "02134.5", "f": "1e39"},
                4: {"d": "+1.5"},
            },
        ),
        TYPES,
    ),
    Case(
        "csv with nested values",
        "a.csv",
        b'id,tags,who,by_key\n1,"[1,2]","{""name"":""Ada""}","{""a"":1}"\n2,"[1.5]",x,"[]"\n',
        IngestedFile(
            ((1, [1, 2], {"name": "Ada", "born": None}, {"a": 1}), (2, None, None, None)),
            {2: {"tags": "[1.5]", "who": "x", "by_key": "[]"}},
        ),
        NESTED,
    ),
    Case("strict csv", "a.csv", b"code,name\nAA,American\n", IngestedFile((("AA", "American"),)), STRICT),
    Case(
        "strict csv is text",
        "a.csv",
        b'code,name\r\nnot-a-number,1e400\r\nAA,"a, ""b"""\r\n 007 ,\r\n',
        IngestedFile((("not-a-number", "1e400"), ("AA", 'a, "b"'), (" 007 ", None))),
        STRICT,
    ),
    Case("strict csv of other columns", "a.csv", b"foo,bar\n1,2\n", RefusedFile("not expected: foo, bar; declare"), STRICT),
    Case(
        "strict csv with a new column",
        "a.csv",
        b"code,name,x\nAA,American,1\n",
        RefusedFile("not expected: x; declare"),
        STRICT,
    ),
    Case("strict csv that lacks a column", "a.csv", b"code\nAA\n", RefusedFile("lacks columns: name; land"), STRICT),
    Case(
        "strict csv in another order",
        "a.csv",
        b"name,code\nAmerican,AA\n",
        RefusedFile("another order: expected code,name"),
        STRICT,
    ),
)

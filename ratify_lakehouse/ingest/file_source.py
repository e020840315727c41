"""A kind of landed file: its format, and the bronze table that takes its rows as they came."""

import codecs
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import PurePosixPath

from ratify_lakehouse.declarations import APPEND_ONLY, Column, TableDeclaration, is_append_only, records_changes
from ratify_lakehouse.delta.snapshot import RETENTION
from ratify_lakehouse.distribution import distribution_version
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.ingest.formats.column_names import snake_case
from ratify_lakehouse.ingest.list_dates import LIST_COLUMNS, ListDate

APPEND = frozenset({"WRITE"})

LOAD_COLUMNS = (
    Column("_source_file", "string", "Path of the landed file, relative to the landing zone"),
    Column("_source_row", "bigint", "Number of the record in its file, from 1, header not counted"),
    Column("_loaded_at", "timestamp", "When the load batch was read (UTC)"),
    Column("_batch_id", "string", "Load batch: one batch is one commit"),
)
"""Columns that bronze adds to what landed."""


RESCUED = Column(
    "_rescued_data",
    "string",
    "Values that fit no other column: a JSON object of them as they came, and _file_path",
)
"""A bronze table that has this column keeps a row with a value of the wrong type, or of a column that it lacks."""

RESERVED = frozenset([*(column.name for column in (*LOAD_COLUMNS, *LIST_COLUMNS)), RESCUED.name])
"""Names of columns that no file fills."""


LOADS_RETAINED = {RETENTION: "interval 30 days"}
"""How long a table's log retains load ids: for an older file the ledger is asked."""


class Format(StrEnum):
    """How a landed file is written; any may be compressed as a whole, by gzip or Zstandard."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


class SchemaMode(StrEnum):
    """Where the columns of a bronze table come from.

    DECLARED: from its declaration. INFERRED: from its first file, and never changed. EVOLVING: the same, and
    `Source.new_columns` may add to them.
    """

    DECLARED = "declared"
    INFERRED = "inferred"
    EVOLVING = "evolving"


class Rewrite(StrEnum):
    """What to do with a file that was loaded and now has other content: refuse it, append its rows to the earlier ones, or
    replace those."""

    REFUSE = "refuse"
    APPEND = "append"
    REPLACE = "replace"


class LandedCopy(StrEnum):
    """What an erasure does with a landed file that has rows of the subject: keep it, and say so, delete it whole, or rewrite
    it without these rows."""

    KEEP = "keep"
    DELETE = "delete"
    REWRITE = "rewrite"


class NewColumns(StrEnum):
    """What to do with a file's columns that the table lacks: add them, rescue their values, or refuse the file."""

    ADD = "add"
    RESCUE = "rescue"
    FAIL = "fail"


@dataclass(frozen=True)
class CsvDialect:
    """How a CSV file is written.

    Attributes:
        delimiter: One character between two values.
        quote: Character around a value that holds delimiters or line ends; empty: values are never quoted.
        escape: Character before a quote inside of quotes.
        header: Whether the first line names the columns; if not, `Source.header` does.
        nulls: Texts that mean NULL.
        decimal: Character before the fraction of a number.
        thousands: Character between groups of three digits of a number; empty: there is none.

    Raises:
        UnsafeDeclaration: one of them is not a single character, or numbers could not be read by the last two.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    header: bool = True
    nulls: tuple[str, ...] = ("",)
    decimal: str = "."
    thousands: str = ""

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or len(self.quote) > 1 or len(self.escape) > 1:
            raise UnsafeDeclaration(
                "A CSV file's delimiter, quote and escape are single characters; declare them so.", "csv"
            )
        for name, sign in {"decimal": self.decimal, "thousands": self.thousands}.items():
            if len(sign) > 1 or sign.isalnum() or sign in {"+", "-", "_"} or (not sign and name == "decimal"):
                raise UnsafeDeclaration(f"{sign!r} cannot be in a number: use a character such as , or '.", "csv", name)
        if self.decimal == self.thousands:
            raise UnsafeDeclaration(
                f"{self.decimal!r} is both the decimal and the thousands separator; declare how each is written.", "csv"
            )
        if not self.quote and self.delimiter in {self.decimal, self.thousands}:
            raise UnsafeDeclaration(
                f"{self.delimiter!r} is the delimiter, and without quotes it cannot be in a number, too.", "csv"
            )


@dataclass(frozen=True)
class Source:
    """A kind of landed file.

    Attributes:
        pattern: Glob on the path relative to the landing zone.
        header: Exact columns of a CSV file's header line, in this order. Empty: a file's own header names its columns,
            ignoring case; those that it lacks are NULL.
        table: Bronze table. One value of the wrong type must not block the other rows of its file: declare text columns
            and validate in silver, or give the table the column RESCUED.
        format: None: by the file's name (`.csv`, `.jsonl`, `.parquet`, with `.gz` or `.zst` behind or not).
        csv: How CSV files are written.
        encoding: Of text, by Python's names (`utf-8`, `utf-16`, `latin-1`, …).
        schema: Where the table's columns come from.
        on_rewrite: What to do with new content under a name that was loaded before.
        rename: Columns of fields that have another name in the file, by that name; it ignores case. Where the schema is
            inferred or evolving, all other fields fill the column of their name in snake_case.
        last_line_open: Accept a CSV file whose last line has no line end. Nothing shows then that a file was cut off.
        landed: What an erasure does with the files.
        new_columns: What to do with columns that the table lacks. To add them, the schema must be evolving.
        lists: Of files that are full lists: where the date of each comes from.

    Raises:
        UnsafeDeclaration: the attributes contradict each other.
    """

    pattern: str
    header: tuple[str, ...]
    table: TableDeclaration
    format: Format | None = None
    csv: CsvDialect = field(default_factory=CsvDialect)
    encoding: str = "utf-8"
    schema: SchemaMode = SchemaMode.DECLARED
    new_columns: NewColumns = NewColumns.FAIL
    on_rewrite: Rewrite = Rewrite.REFUSE
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    last_line_open: bool = False
    landed: LandedCopy = LandedCopy.KEEP
    lists: ListDate | None = None

    def __post_init__(self) -> None:
        try:
            "".encode(self.encoding)
        except LookupError as error:
            raise UnsafeDeclaration(
                f"{self.pattern}: there is no encoding {self.encoding!r}; see Python's codecs.", "encoding"
            ) from error
        if self.new_columns is NewColumns.ADD and self.schema is not SchemaMode.EVOLVING:
            raise UnsafeDeclaration(
                f"{self.pattern}: columns are added to an evolving schema only, not to a {self.schema} one."
            )
        if self.new_columns is NewColumns.RESCUE and RESCUED.name not in self.table.column_names:
            raise UnsafeDeclaration(
                f"{self.pattern}: to rescue new columns, {self.table_name} needs the column {RESCUED.name}."
            )
        if self.on_rewrite is Rewrite.REPLACE:
            self._refuse_replacement()
        folded = [name.lower() for name in self.rename]
        if doubled := sorted({name for name in folded if folded.count(name) > 1}):
            raise UnsafeDeclaration(f"{self.pattern}: {doubled[0]!r} is renamed twice (names ignore case).", "rename")
        if not self.csv.header and not self.header:
            raise UnsafeDeclaration(
                f"{self.pattern}: CSV files without a header line need a declared header.", "csv", "header"
            )
        if self.lists:
            self._check_lists(self.lists)
        self._check_format()

    def _refuse_replacement(self) -> None:
        """Refuse what would let a corrected file fail each time that it lands."""
        otherwise = "" if self.lists else ", or let on_rewrite be append"
        if records_changes(self.table.properties):
            raise UnsafeDeclaration(
                f"{self.pattern}: a corrected file cannot replace rows of a table with a change data feed: DuckDB moves "
                "those that stay to new files, which the feed would show as deleted. Leave the feed out (incremental tables "
                f"compare versions then){otherwise}.",
                "contents" if self.lists else "on_rewrite",
            )
        if is_append_only(self.table.properties):
            raise UnsafeDeclaration(
                f"{self.pattern}: a corrected file cannot replace rows of an append-only table. Leave {APPEND_ONLY} "
                f"out{otherwise}.",
                "contents" if self.lists else "on_rewrite",
            )

    def _check_lists(self, dated: ListDate) -> None:
        if self.landed is LandedCopy.REWRITE:
            raise UnsafeDeclaration(
                f"{self.pattern}: a list is known by its bytes and its name, which a rewritten file would not have: let "
                "`landed` be keep or delete.",
                "landed",
            )
        if dated.column and self.schema is SchemaMode.DECLARED and dated.column not in self.table.column_names:
            raise UnsafeDeclaration(f"{self.pattern}: {dated.column!r} is not a column of the table.", "list_date", "column")

    def _check_format(self) -> None:
        """Check that nothing is declared that files of the format do not have.

        Raises:
            UnsafeDeclaration: something is.
        """
        form = self.format_of(self.pattern)
        if form in (None, Format.CSV):
            return
        given = {
            "csv": self.csv != CsvDialect() or bool(self.header) or self.last_line_open,
            "encoding": form is Format.PARQUET and codecs.lookup(self.encoding).name != "utf-8",
        }
        if meaningless := next((attribute for attribute, is_given in given.items() if is_given), ""):
            raise UnsafeDeclaration(
                f"{self.pattern}: files of the format {form.value} have no {meaningless} options; leave them out, or "
                "declare another format.",
                meaningless,
            )

    @property
    def digest(self) -> str:
        """A hash of all that decides whether a file can be loaded, this package's version included: a file that was refused
        is tried again once it differs."""
        columns = [(column.name, column.type, column.nullable) for column in self.table.columns]
        rules = (self.header, columns, self.format, self.csv, self.encoding, self.schema, self.new_columns, self.on_rewrite)
        rules += (sorted(self.rename.items()), self.last_line_open, self.lists)
        return hashlib.sha256(repr((rules, distribution_version())).encode()).hexdigest()[:16]

    def content_of(self, path: str, sha256: str, fingerprint: str) -> str:
        """Return by what the content of a file is known: the SHA-256 of its bytes, or what stands for it of a list."""
        return self.lists.content(path, sha256, fingerprint) if self.lists else sha256

    def column_of(self, field: str) -> str:
        """Return the name of the column that a field of a file fills; empty where no column can be named after it."""
        renamed = {name.lower(): column for name, column in self.rename.items()}.get(field.lower())
        return renamed or (field if self.schema is SchemaMode.DECLARED else snake_case(field))

    @property
    def table_name(self) -> str:
        """The bronze table as `schema.table`."""
        return self.table.table_name

    def format_of(self, file: str) -> Format | None:
        """Return the format of a file by its declaration, or else by its name; None if neither gives one."""
        suffixes = [suffix.lower() for suffix in PurePosixPath(file).suffixes]
        while suffixes and suffixes[-1] in (".gz", ".zst"):
            suffixes.pop()
        return self.format or (_SUFFIXES.get(suffixes[-1]) if suffixes else None)

    @property
    def infers_types(self) -> bool:
        """Whether types of its table's columns come from its files."""
        return self.schema is not SchemaMode.DECLARED or self.table.types_from_files

    def inferred_table(self, columns: Sequence[Column]) -> TableDeclaration:
        """Return the bronze table with the columns of its first file (see `infer`), and then its other declared ones.

        A column of the file that is declared, too, is as declared. Without a type it has the file's, and is a string where
        the file lacks it.
        """
        found = {column.name.lower(): column.type for column in columns}
        declared = {column.name.lower(): _typed(column, found, "string") for column in self.table.columns}
        others = () if self.table.types_from_files else columns
        from_file = [declared.pop(column.name.lower(), column) for column in others]
        return replace(self.table, columns=(*from_file, *declared.values()))

    def present_table(self, columns: Sequence[Column]) -> TableDeclaration:
        """Return the bronze table with the columns that it has and its files fill, given all that it has."""
        if self.schema is not SchemaMode.DECLARED:
            declared = {column.name.lower(): column for column in self.table.columns}
            present = [
                replace(declared.get(each.name.lower(), each), type=each.type, nullable=each.nullable) for each in columns
            ]
        else:
            types = {column.name.lower(): column.type for column in columns}
            present = [_typed(column, types) for column in self.table.columns]
        return replace(self.table, columns=tuple(column for column in present if column.type))


def _typed(column: Column, types: Mapping[str, str], otherwise: str = "") -> Column:
    """A column with the type that it is declared with, or else that of its name in lower case."""
    return column if column.type else replace(column, type=types.get(column.name.lower(), otherwise))


_SUFFIXES = {
    ".csv": Format.CSV,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSONL,
    ".parquet": Format.PARQUET,
}

"""The component `LandedFiles`: a bronze table of the rows of landed files, declared in YAML."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal

import dagster as dg
from pydantic import BaseModel, Field

from ratify_lakehouse.components.checks.check_definitions import landed_file_checks
from ratify_lakehouse.components.declaration_places import located
from ratify_lakehouse.components.landed_files import bronze_table, landing_spec
from ratify_lakehouse.components.table_component import TableColumn, TableComponent
from ratify_lakehouse.components.table_policies import with_freshness
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.ingest.file_source import (
    APPEND,
    LOAD_COLUMNS,
    LOADS_RETAINED,
    RESCUED,
    CsvDialect,
    Format,
    LandedCopy,
    NewColumns,
    Rewrite,
    SchemaMode,
    Source,
)
from ratify_lakehouse.ingest.list_dates import LIST_COLUMNS, ListDate


class LandedColumn(TableColumn):
    """A column of a table of landed files."""

    type: str = Field(
        default="",
        description="Spark SQL type, such as bigint or decimal(10,2); by default, the type in the table, or the one "
        "inferred from the first file",
    )
    field: str = Field(default="", description="Its name in the files, if different")


class CsvOptions(dg.Model, dg.Resolvable):
    """How the CSV files are written."""

    delimiter: str = Field(default=",", description="Delimiter: one character between two values")
    quote: str = Field(default='"', description="Quote around values with delimiters or line ends; empty: none")
    escape: str = Field(default='"', description="Escape character before a quote inside quotes")
    header: bool = Field(default=True, description="Whether the first line names the columns")
    nulls: list[str] = Field(default=[""], description="Texts that mean NULL")
    decimal: str = Field(default=".", description="Decimal separator of numbers")
    thousands: str = Field(default="", description="Thousands separator of numbers; empty: none")
    exact_header: bool = Field(default=False, description="Refuse a file whose header is not the declared columns, in order")
    last_line_open: bool = Field(
        default=False, description="Accept a last line without a line end; truncated files then go unnoticed"
    )


class DatedLists(dg.Model, dg.Resolvable):
    """Where the date of a full list comes from: one of these."""

    name: str = Field(default="", description="How it is written in the file's path: %Y, %m, %d, and the text between them")
    column: str = Field(default="", description="Column of the rows with it; a file may have several lists then")
    landing: bool = Field(default=False, description="The day, in UTC, on which the file last changed")


class LandedFilesParameters(BaseModel):
    """Options of `dg scaffold defs ratify_lakehouse.LandedFiles`."""

    pattern: str = Field(description="Glob for paths in the landing zone, such as orders/*.csv")
    description: str = Field(default="Rows of landed files, as they came", description="What a row is")


class LandedFilesScaffolder(dg.Scaffolder[LandedFilesParameters]):
    """Writes the `defs.yaml` of a table of landed files."""

    @classmethod
    def get_scaffold_params(cls) -> type[LandedFilesParameters]:
        """Return the command's options."""
        return LandedFilesParameters

    def scaffold(self, request: dg.ScaffoldRequest[LandedFilesParameters]) -> None:
        """Write it."""
        given = request.params
        dg.scaffold_component(request, {"description": given.description, "pattern": given.pattern})


@dg.scaffold_with(LandedFilesScaffolder)
class LandedFiles(TableComponent):
    """A table of the rows of landed files: each file's rows are loaded once, by DuckDB, as they came.

    The sensor of landed files finds the files and requests the runs. Without columns, they are inferred from the first file.
    """

    pattern: str = Field(description="Glob for paths in the landing zone, such as orders/*.csv")
    columns: list[LandedColumn] = Field(default=[], description="The columns; none: inferred from the first file")
    evolving: bool = Field(default=False, description="Add the new columns of later files to inferred ones")
    rescue: bool = Field(default=False, description="Keep values that fit no column, as JSON in the column _rescued_data")
    format: Format | None = Field(default=None, description="csv, jsonl or parquet; by default the file's name decides")
    csv: CsvOptions = Field(default=CsvOptions(), description="How CSV files are written")
    encoding: str = Field(default="utf-8", description="Encoding of text files, by its name in Python")
    rename: dict[str, str] = Field(default={}, description="Names of inferred columns, by their names in the files")
    contents: Literal["rows", "snapshot"] = Field(
        default="rows", description="What a file has: rows of its own, or as a snapshot the full list of a date"
    )
    list_date: DatedLists | None = Field(
        default=None, description="For snapshots: where a list's date comes from; by default its name, as in 2024-01-31"
    )
    on_rewrite: Rewrite | None = Field(
        default=None,
        description="What to do with new content under a loaded file name: refuse (the default), append or replace; of a "
        "snapshot it is the list's correction",
    )
    landed: LandedCopy = Field(
        default=LandedCopy.KEEP,
        description="What `ratify erase` does with landed files that have rows of the subject: keep, delete (the whole "
        "file) or rewrite (without these rows)",
    )

    @cached_property
    def source(self) -> Source:
        """The files and their table.

        Raises:
            InvalidDeclaration: the attributes contradict each other, or other engines could not read the table.
        """
        with located(self.folder / "defs.yaml"):
            return self._source()

    def _source(self) -> Source:
        schema = SchemaMode.EVOLVING if self.evolving else SchemaMode.DECLARED if self.columns else SchemaMode.INFERRED
        new_columns = NewColumns.ADD if self.evolving else NewColumns.RESCUE if self.rescue else NewColumns.FAIL
        named = tuple(each.field or each.name for each in self.columns)
        lists = self._lists
        # Where the landing dates lists, those of several days may have one name.
        corrected = Rewrite.APPEND if lists and lists.landing else Rewrite.REPLACE
        # A rescued value may be that of any column.
        rescued = replace(RESCUED, pii=any(each.pii or each.subject for each in self.columns))
        return Source(
            pattern=self.pattern,
            header=named if self.csv.exact_header or not self.csv.header else (),
            table=self.declared(
                columns=(
                    *self.declared_columns(self.columns, [each.type for each in self.columns]),
                    *LOAD_COLUMNS,
                    *(LIST_COLUMNS if lists else ()),
                    *([rescued] if self.rescue else []),
                ),
                writer=Engine.DUCKDB,
                operations=APPEND,
                properties=LOADS_RETAINED | self.properties,
                inferred=schema is not SchemaMode.DECLARED,
                types_from_files=schema is SchemaMode.DECLARED and not all(each.type for each in self.columns),
            ),
            format=self.format,
            csv=CsvDialect(
                self.csv.delimiter,
                self.csv.quote,
                self.csv.escape,
                header=self.csv.header,
                nulls=tuple(self.csv.nulls),
                decimal=self.csv.decimal,
                thousands=self.csv.thousands,
            ),
            encoding=self.encoding,
            schema=schema,
            new_columns=new_columns,
            on_rewrite=corrected if lists else self.on_rewrite or Rewrite.REFUSE,
            rename={**self.rename, **{each.field: each.name for each in self.columns if each.field}},
            last_line_open=self.csv.last_line_open,
            landed=self.landed,
            lists=lists,
        )

    @property
    def _lists(self) -> ListDate | None:
        """Where the date of a list comes from; None where a file is no list."""
        if self.contents != "snapshot":
            if self.list_date:
                raise UnsafeDeclaration("only a snapshot has the date of a list: declare `contents: snapshot`.", "list_date")
            return None
        if self.on_rewrite:
            raise UnsafeDeclaration("new content of a list is its correction: take it out.", "on_rewrite")
        given = self.list_date
        return ListDate(given.name, given.column, given.landing) if given else ListDate("%Y-%m-%d")

    @property
    def written(self) -> Sequence[TableDeclaration]:
        """The table."""
        return [self.source.table]

    def table_defs(self) -> dg.Definitions:
        """Return the landed files as an external asset, the table, and its checks."""
        source = self.source
        return self.definitions(
            [landing_spec(source), bronze_table(source)],
            landed_file_checks(source),
            with_freshness,
            "_source_file" if source.on_rewrite is Rewrite.REPLACE else "",
            reported=False,
        )

"""What the components of tables share that are made by a query in a `.sql` file beside the YAML."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import dagster as dg
from pydantic import Field

from ratify_lakehouse.components.declaration_places import in_field
from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectation
from ratify_lakehouse.components.personal_columns import MarkedTable
from ratify_lakehouse.components.table_component import TableColumn, TableComponent
from ratify_lakehouse.declarations import Column
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.sql.table_query import Dialect, TableQuery, check_predicate


class ExpectedRow(dg.Model, dg.Resolvable):
    """An expectation: what has to be true of each row."""

    name: str = Field(description="Name of its asset check, and in the quarantine")
    expect: str = Field(description="Predicate over the query's columns, in the SQL of its engine; NULL fails")
    action: Action = Field(
        default=Action.WARN, description="What happens to a row that fails: warn, drop, quarantine, or fail (the whole run)"
    )
    description: str = Field(default="", description="Shown with its asset check")


class QueriedColumn(TableColumn):
    """A column of the query."""

    type: str = Field(default="", description="Spark SQL type that the query must return; empty: any")


class UniqueRow(dg.Model, dg.Resolvable):
    """Which of several rows with the same keys is accepted; the others are dropped."""

    latest: list[str] = Field(
        description="The row with the greatest values in these columns, in this order, wins; no two rows may be equal in "
        "all of them"
    )


def read_query(file: Path, dialect: Dialect, *field: str) -> TableQuery:
    """Return the query in a file.

    Args:
        file: The file, beside a `defs.yaml`.
        dialect: Its SQL.
        field: The field of the declaration that names it.

    Raises:
        UnsafeDeclaration: it is missing.
        InvalidDeclaration: it is not one query that names its tables with their schemas.
    """
    return TableQuery.parsed(query_text(file, *field), dialect, "/".join(file.parts[-3:]))


def query_text(file: Path, *field: str) -> str:
    """Return the text in the file of a query, without a semicolon at its end.

    Args:
        file: The file, beside a `defs.yaml`.
        field: The field of the declaration that names it.

    Raises:
        UnsafeDeclaration: it is missing.
    """
    try:
        text = file.read_text()
    except FileNotFoundError:
        where = "/".join(file.parts[-3:])
        raise UnsafeDeclaration(f"{where} does not exist; write the table's query there.", *field) from None
    return text.rstrip().removesuffix(";")


def check_no_quarantine(rules: Sequence[Expectation], reason: str) -> None:
    """Check that no expectation quarantines rows.

    Args:
        rules: The expectations.
        reason: Why none may, as the rest of a sentence.

    Raises:
        UnsafeDeclaration: one does.
    """
    for number, rule in enumerate(rules):
        if rule.action is Action.QUARANTINE:
            raise UnsafeDeclaration(f"{rule.name} quarantines rows, {reason}", "expectations", number, "action")


class QueryComponent(TableComponent):
    """A table that a query makes, whose rows are validated by expectations."""

    sql: str = Field(default="", description="File of the query, beside defs.yaml; by default <table>.sql")
    keys: list[str] = Field(min_length=1, description="Columns that identify a row")
    expectations: list[ExpectedRow] = Field(default=[], description="What must be true of each row")

    @property
    def dialect(self) -> Dialect:
        """The SQL that the query is written in."""
        return "databricks"

    @property
    def query_file(self) -> Path:
        """The file of the query."""
        return self.folder / (self.sql or f"{self.folder.name}.sql")

    @cached_property
    def query(self) -> TableQuery:
        """The query.

        Raises:
            UnsafeDeclaration: its file is missing.
            InvalidDeclaration: it is not one query that names its tables with their schemas.
        """
        return read_query(self.query_file, self.dialect, "sql")

    def marked_tables(self) -> Iterable[MarkedTable]:
        """See `DeclaredComponent`: by the declared columns and the query, as the table itself asks for what this gives."""
        name, (whole, others) = f"{self.folder.parent.name}.{self.folder.name}", self._quarantined
        columns = [Column(column.name, "", pii=column.pii, subject=column.subject) for column in self._marked]
        personal = [column.name for column in columns if column.pii or column.subject]
        yield MarkedTable(name, columns, personal, self.query, self._renamed)
        beside = [Column(other, "", pii=False) for other in others]
        in_quarantine = [*personal, *(whole if personal else ())]
        yield MarkedTable(f"{name}_quarantine", [*columns, *beside], in_quarantine, self.query, unknown=whole)

    @property
    @abstractmethod
    def _marked(self) -> Sequence[TableColumn]:
        """What is declared of the columns."""

    @property
    def _renamed(self) -> Mapping[str, str]:
        """The query's columns by those of the table that have other names; empty for one that has nothing of a row."""
        return {}

    @property
    def _quarantined(self) -> tuple[Sequence[str], Sequence[str]]:
        """The columns of a quarantine that may have anything of a row, and those that have nothing of it."""
        return ("row", "row_hash"), ("rule", "rows")

    def rules(self) -> tuple[Expectation, ...]:
        """Return the expectations.

        Raises:
            UnsafeDeclaration: one is not a predicate over the query's columns.
        """
        for number, each in enumerate(self.expectations):
            with in_field("expectations", number, "expect"):
                check_predicate(each.expect, self.query)
        return tuple(Expectation(each.name, each.expect, each.action, each.description) for each in self.expectations)

"""Table declarations: what a table is, declared once, in terms that every engine reads alike.

The refusals come from engines' measured limits (docs/compatibility.md): one TIMESTAMP_NTZ or VARIANT column, or a DECIMAL
directly in a struct or map, makes every table of its schema unreadable in DuckDB; a table with column mapping that DuckDB
writes to reads as NULL in every engine; DuckDB cannot insert into tables with CHECK constraints, generated, identity or
default columns.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ratify_lakehouse.column_types import DECIMAL, NESTED, PLAIN_TYPES, SAME_TEXT, split_parts, sql_type
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.sql.spark_sql import identifier, literal, table_name
from ratify_lakehouse.sql.subject_match import Match
from ratify_lakehouse.table_layout import NO_LAYOUT, Layout

IDENTIFIER = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,254}$")
SAFE_PROPERTIES: Mapping[str, str] = {
    # Some servers suggest another mode, which DuckDB corrupts silently: so DDL always sets it.
    "delta.columnMapping.mode": "none",
}
CHANGE_DATA_FEED = "delta.enableChangeDataFeed"
APPEND_ONLY = "delta.appendOnly"
ROW_TRACKING = "delta.enableRowTracking"
"""Spark switches it on for each managed table that does not say otherwise. Then its every commit computes the table's whole
state, to learn the greatest row id, which takes longer than a small commit itself."""
OWNER = "ratify.owner"
"""Property of every table that is created from a declaration."""


def records_changes(properties: Mapping[str, str]) -> bool:
    """Return whether a table with these properties records its changes. Delta takes `TRUE` for true, too."""
    return properties.get(CHANGE_DATA_FEED, "").lower() == "true"


def is_append_only(properties: Mapping[str, str]) -> bool:
    """Return whether no row may be removed from a table with these properties. Delta takes `TRUE` for true, too."""
    return properties.get(APPEND_ONLY, "").lower() == "true"


class Engine(StrEnum):
    """An engine that commits, by the name that Delta's `engineInfo` starts with."""

    SPARK = "Spark"
    DATABRICKS = "Databricks Runtime"
    DUCKDB = "DuckDB"
    FLINK = "Flink"
    OTHER = "other"

    @property
    def declared(self) -> "Engine":
        """The engine by which a declaration names it: Databricks Runtime is the Spark of a workspace."""
        return Engine.SPARK if self is Engine.DATABRICKS else self


@dataclass(frozen=True)
class Column:
    """A column: `type` in Spark SQL's words (bigint, string, timestamp, array<string>, …).

    Without a type, its type is that of the query or file that it comes from. `sources` names the columns that it is computed
    from, as `layer.table.column`, for the column lineage. `pii` marks personal data, which nothing shows; None: it is that
    if what it is computed from is. `subject` is the kind of person or thing that a value identifies, such as user:
    `ratify erase` finds rows by it.
    """

    name: str
    type: str
    comment: str = ""
    sources: tuple[str, ...] = ()
    nullable: bool = True
    pii: bool | None = None
    subject: str = ""


@dataclass(frozen=True)
class TableDeclaration:
    """A table of the lakehouse.

    Attributes:
        layer: Schema that holds it, such as bronze, silver or gold.
        keys: Columns that identify a row, for MERGE; empty for a table that is only appended to.
        writer: Engine that commits rows to it.
        operations: Delta operations that `writer` may leave in the history (DuckDB's appends are `WRITE`).
        owner: Team that is responsible for it, shown in the UI and set as a table property.
        tags: For the UI.
        inferred: Columns without a type, and others than those declared here, come from its files or its query.
        types_from_files: Columns without a type have that of its files; it has no others than those declared here.
        catalog: The catalog that holds it; empty for the project's.
        layout: How the rows of a new table are divided among its files.
        subjects: How rows of a person or thing are known beside by columns that say so, by its kind, such as user.

    Raises:
        UnsafeDeclaration: another engine could not read the table, or would read or write it wrong.
    """

    layer: str
    name: str
    columns: tuple[Column, ...]
    comment: str
    writer: Engine
    operations: frozenset[str]
    owner: str = "data-platform"
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    inferred: bool = False
    types_from_files: bool = False
    catalog: str = ""
    layout: Layout = NO_LAYOUT
    subjects: Mapping[str, Sequence[Match]] = field(default_factory=dict[str, Sequence[Match]])

    def __post_init__(self) -> None:
        self._check_names()
        self._check_layout()
        for column in self.columns:
            if column.type or not (self.inferred or self.types_from_files):
                check_type(self._where(column.name), column.type)
            if column.subject and column.type and sql_type(column.type).spark not in SAME_TEXT:
                raise UnsafeDeclaration(
                    f"{self._where(column.name)}: engines write values of the type {column.type} as different texts, so "
                    f"no subject can be found by it; use one of {', '.join(sorted(SAME_TEXT))}."
                )
        for key, value in self.properties.items():
            self._check_property(key, value)

    @property
    def column_types(self) -> dict[str, str]:
        """Types of the columns by name, as `sql_type` spells them."""
        return {column.name: sql_type(column.type).spark for column in self.columns if column.type}

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns, in table order."""
        return tuple(column.name for column in self.columns)

    @property
    def computed_from(self) -> tuple[str, ...]:
        """The tables that its columns are computed from, as schema.table."""
        return tuple(sorted({source.rpartition(".")[0] for column in self.columns for source in column.sources}))

    @property
    def personal(self) -> tuple[str, ...]:
        """The columns whose values are shown nowhere: they have personal data, or say whose a row is."""
        matched = {match.column for matches in self.subjects.values() for match in matches}
        return tuple(column.name for column in self.columns if column.pii or column.subject or column.name in matched)

    @property
    def shown_columns(self) -> tuple[str, ...]:
        """The other columns, in table order."""
        hidden = self.personal
        return tuple(name for name in self.column_names if name not in hidden)

    @property
    def created_properties(self) -> dict[str, str]:
        """The properties that the table is created with."""
        # Only under this level may Delta skip a MERGE's empty commit; elsewhere than in open-source Delta it is no default.
        isolation = {"delta.isolationLevel": "Serializable"} if self.keys else {}
        return {**SAFE_PROPERTIES, **self.properties, OWNER: self.owner, **isolation}

    @property
    def table_name(self) -> str:
        """The table as `schema.table`."""
        return f"{self.layer}.{self.name}"

    def full_name(self, catalog: str) -> str:
        """Return the three-part name, `catalog.schema.table`, given the project's catalog."""
        return f"{self.catalog or catalog}.{self.table_name}"

    def key_path(self, catalog: str) -> list[str]:
        """Return the asset key's path, which is the table's full name."""
        return [self.catalog or catalog, self.layer, self.name]

    def ddl(self, catalog: str) -> str:
        """Return the Spark DDL that creates the table where it is missing."""
        columns = ",\n  ".join(_column_ddl(column) for column in self.columns)
        shown = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in sorted(self.created_properties.items()))
        return (
            f"CREATE TABLE IF NOT EXISTS {table_name(self.full_name(catalog))} (\n  {columns}\n) USING DELTA\n"
            f"{self.layout.ddl}COMMENT {literal(self.comment)}\nTBLPROPERTIES ({shown})"
        )

    def ddl_for_missing(self, catalog: str, existing: Sequence[str]) -> str | None:
        """Return the Spark DDL that adds the columns which are not in `existing`, or None if all are."""
        known = {name.lower() for name in existing}
        missing = [_column_ddl(column) for column in self.columns if column.name.lower() not in known]
        return f"ALTER TABLE {table_name(self.full_name(catalog))} ADD COLUMNS ({', '.join(missing)})" if missing else None

    def _where(self, column: str) -> str:
        return f"{self.table_name}, column {column!r}"

    def _check_names(self) -> None:
        where = self.table_name
        if self.layer.lower() == "information_schema":
            raise UnsafeDeclaration(f"{where}: that schema is the catalog's own; choose another name.")
        for name in (self.layer, self.name, *self.column_names):
            if not IDENTIFIER.fullmatch(name):
                raise UnsafeDeclaration(
                    f"{where}: {name!r} is not a plain identifier. Other names need column mapping, which DuckDB cannot "
                    "write correctly; use letters, digits and _."
                )
        folded = [name.lower() for name in self.column_names]
        if not folded and not self.inferred:
            raise UnsafeDeclaration(f"{where}: a table without columns cannot be read by DuckDB; declare them.")
        if doubled := sorted({name for name in folded if folded.count(name) > 1}):
            raise UnsafeDeclaration(f"{where}: column {doubled[0]!r} is declared twice (names ignore case).", "columns")
        for name in self.keys:
            if name not in self.column_names and not self.inferred:
                raise UnsafeDeclaration(f"{where}: {name!r} is a key but not a column.", "keys")

    def _check_layout(self) -> None:
        types = {column.name: sql_type(column.type).spark if column.type else "" for column in self.columns}
        self.layout.check(self.table_name, types, all_known=not self.inferred)
        if self.layout.partition_by and self.writer is Engine.DUCKDB:
            raise UnsafeDeclaration(
                f"{self.table_name}: DuckDB writes it, and only to tables without partitions; use cluster_by.",
                "partition_by",
            )

    def _check_property(self, key: str, value: str) -> None:
        where = self.table_name
        if key == "delta.columnMapping.mode" and value != "none":
            raise UnsafeDeclaration(
                f"{where}: column mapping {value!r} makes DuckDB write columns that every engine reads as NULL; "
                "leave delta.columnMapping.mode at none."
            )
        if key == OWNER:
            raise UnsafeDeclaration(f"{where}: {OWNER} is the declared owner; declare `owner`.")
        if key.startswith(("delta.constraints.", "delta.generationExpression", "delta.identity")):
            raise UnsafeDeclaration(
                f"{where}: DuckDB cannot insert into a table with {key}; check the rule before writing instead."
            )


def _column_ddl(column: Column) -> str:
    null = "" if column.nullable else " NOT NULL"
    comment = f" COMMENT {literal(column.comment)}" if column.comment else ""
    return f"{identifier(column.name)} {column.type}{null}{comment}"


def check_type(where: str, type_text: str, *, inside: str = "") -> None:
    """Check that every engine reads and writes columns of a type.

    Args:
        where: Names the column in errors.
        type_text: The type, in Spark SQL's words.
        inside: The kind of the type that it is a part of; empty for a column.

    Raises:
        UnsafeDeclaration: one does not.
    """
    text = type_text.strip().lower()
    if text.startswith(("timestamp_ntz", "timestamp without")):
        raise UnsafeDeclaration(f"{where}: TIMESTAMP_NTZ hides its whole schema from DuckDB; use timestamp (UTC).")
    if text == "variant":
        raise UnsafeDeclaration(f"{where}: VARIANT hides its whole schema from DuckDB; keep the JSON as string.")
    if DECIMAL.match(text):
        # DuckDB splits a struct or map at each comma, also at that of decimal(10,2); the brackets of an array hide it.
        if inside in {"struct", "map"}:
            raise UnsafeDeclaration(
                f"{where}: a DECIMAL inside a {inside} hides its whole schema from DuckDB; move it to a column of its own."
            )
        return
    if text in PLAIN_TYPES:
        return
    if nested := NESTED.match(text):
        kind, inner = nested.groups()
        for part in split_parts(inner):
            name, part_type = "", part
            if kind == "struct":
                name, _, part_type = re.sub(r"\s*[:\s]\s*", ":", part.strip(), count=1).partition(":")
                if not IDENTIFIER.fullmatch(name):
                    raise UnsafeDeclaration(
                        f"{where}: the field {name!r} is not a plain identifier; use letters, digits and _."
                    )
            check_type(where, part_type, inside=kind)
        return
    raise UnsafeDeclaration(
        f"{where}: type {type_text!r} is not one that Spark, DuckDB and Delta all know; use one of "
        f"{', '.join(sorted(PLAIN_TYPES))}, decimal(p,s), array<…>, map<…>, struct<…>."
    )

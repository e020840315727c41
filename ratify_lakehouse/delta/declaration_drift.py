"""How a table differs from its declaration, what can be corrected in place, and the commit that does it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from ratify_lakehouse.column_types import delta_field, sql_type, type_of_delta
from ratify_lakehouse.declarations import APPEND_ONLY, CHANGE_DATA_FEED, Column, TableDeclaration
from ratify_lakehouse.delta.commit_actions import NothingToCommit, Proposal
from ratify_lakehouse.delta.layout_change import layout_of
from ratify_lakehouse.delta.schema_change import catalog_column
from ratify_lakehouse.delta.snapshot import RETENTION, Json, Snapshot
from ratify_lakehouse.sql.spark_sql import literal, table_name

_MAPPING = "delta.columnMapping.mode"
_CONSTRAINT = "delta.constraints."
_CATALOGING = "catalog."
"""Prefix of the properties that say whose a table is (Delta Lake: The Definitive Guide, table 5-2)."""
_WITHOUT_FEATURE = frozenset(
    {"delta.isolationLevel", "delta.logRetentionDuration", "delta.deletedFileRetentionDuration", RETENTION}
)
_WITH_FEATURE = {CHANGE_DATA_FEED: "changeDataFeed", APPEND_ONLY: "appendOnly"}
_UNSET = "not set"


class CorrectedBy(StrEnum):
    """What can make a table as its declaration has it."""

    COMMIT = "one commit with all others of this kind"
    SPARK = "Spark, in a commit of its own"
    LAYOUT = "`ratify layout`"
    NONE = "not possible in place"


class Aspect(StrEnum):
    """In what a table can differ."""

    PROPERTY = "property"
    COMMENT = "comment"
    MISSING = "missing column"
    EXTRA = "extra column"
    TYPE = "type of column"
    NULLABLE = "NULL in column"
    COLUMN_COMMENT = "comment of column"
    LAYOUT = "layout"


@dataclass(frozen=True)
class Difference:
    """One difference.

    Attributes:
        aspect: In what.
        name: Of the property or column; empty for the table.
        declared: What the declaration has.
        actual: What the table has.
        correction: What can correct it.
        next_step: What to do.
    """

    aspect: Aspect
    name: str
    declared: str
    actual: str
    correction: CorrectedBy
    next_step: str

    def __str__(self) -> str:
        what = f"{self.aspect} {self.name}".rstrip()
        return f"{what}: declared {self.declared}, actual {self.actual}"


def differences(snapshot: Snapshot, declaration: TableDeclaration) -> list[Difference]:
    """Return in what a table, as its log and the catalog have it, differs from its declaration.

    A declaration says nothing of properties and comments that it does not set, apart from `catalog.*` and constraints, nor,
    where columns are inferred, of further columns and of types that it leaves out. Differences within the type of a column
    are differences of its type.
    """
    return [*_table_differences(snapshot, declaration), *_column_differences(snapshot, declaration)]


def as_declared(snapshot: Snapshot, declaration: TableDeclaration, record: str = "") -> Proposal:
    """Return the proposal that corrects each difference whose correction is `CorrectedBy.COMMIT`.

    `record`: see `Proposal`.

    Raises:
        NothingToCommit: there is none.
    """
    found = [each for each in differences(snapshot, declaration) if each.correction is CorrectedBy.COMMIT]
    if not found:
        raise NothingToCommit
    metadata, properties = dict(snapshot.metadata), _logged_properties(snapshot)
    schema = json.loads(metadata["schemaString"])
    declared = {column.name: column for column in declaration.columns}
    updates, wanted = list[Json](), declaration.created_properties
    named = {each.name for each in found if each.aspect is Aspect.PROPERTY}
    if given := {name: wanted[name] for name in named if name in wanted}:
        updates.append({"action": "set-properties", "updates": given})
    if removed := sorted(named - wanted.keys()):
        updates.append({"action": "remove-properties", "removals": removed})
    metadata["configuration"] = {k: v for k, v in (properties | given).items() if k not in removed}
    if any(each.aspect is Aspect.COMMENT for each in found):
        metadata["description"] = declaration.comment
        updates.append({"action": "set-table-comment", "comment": declaration.comment})
    of_columns = [each for each in found if each.name in declared and each.aspect is not Aspect.PROPERTY]
    for each in of_columns:
        _correct_column(schema["fields"], each.aspect, declared[each.name])
    if of_columns:
        metadata["schemaString"] = json.dumps(schema)
        fields = [catalog_column(field) for field in schema["fields"]]
        updates.append({"action": "set-columns", "columns": {"type": "struct", "fields": fields}})
    adds = any(each.aspect is Aspect.MISSING for each in found)
    return Proposal(
        operation="ADD COLUMNS" if adds else "CHANGE COLUMN" if of_columns else "SET TBLPROPERTIES",
        parameters={"as declared": json.dumps([str(each) for each in found])},
        metadata=(metadata, updates),
        record=record,
    )


def spark_statement(full_name: str, found: Sequence[Difference]) -> str:
    """Return the statement that corrects each difference whose correction is `CorrectedBy.SPARK`; empty if there is none."""
    wanted = {each.name: each.declared for each in found if each.correction is CorrectedBy.SPARK}
    listed = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in sorted(wanted.items()))
    return f"ALTER TABLE {table_name(full_name)} SET TBLPROPERTIES ({listed})" if wanted else ""


def _table_differences(snapshot: Snapshot, declaration: TableDeclaration) -> Iterator[Difference]:
    logged, wanted = _logged_properties(snapshot), declaration.created_properties
    for name, value in sorted(wanted.items()):
        in_log, in_catalog = logged.get(name), snapshot.properties.get(name)
        # Column mapping is none where nothing is set.
        if {in_log, in_catalog} == {value} or (name == _MAPPING and {in_log, in_catalog} <= {value, None}):
            continue
        both = f"{in_log or _UNSET} in the log, {in_catalog or _UNSET} in the catalog"
        actual = both if in_log != in_catalog else in_log or _UNSET
        yield Difference(Aspect.PROPERTY, name, value, actual, *_property_correction(snapshot, name))
    for name in sorted({*logged, *snapshot.properties} - wanted.keys()):
        actual = logged.get(name) or snapshot.properties.get(name, "")
        if name.startswith(_CATALOGING):
            step = _applied("declare it under `table_properties`")
            yield Difference(Aspect.PROPERTY, name, _UNSET, actual, CorrectedBy.COMMIT, step)
        elif name.startswith(_CONSTRAINT):
            dropped = f"ALTER TABLE {snapshot.full_name} DROP CONSTRAINT {name.removeprefix(_CONSTRAINT)}"
            step = (
                f"DuckDB cannot insert into a table with a constraint: run {dropped} in Spark, and declare an expectation."
            )
            yield Difference(Aspect.PROPERTY, name, _UNSET, actual, CorrectedBy.NONE, step)
    comment: str = snapshot.metadata.get("description") or ""
    if declaration.comment and comment != declaration.comment:
        step = _applied("change `description`")
        yield Difference(Aspect.COMMENT, "", declaration.comment, comment or _UNSET, CorrectedBy.COMMIT, step)
    if not (found := layout_of(snapshot)).same_as(declaration.layout):
        step = f"`ratify layout {declaration.table_name}` writes its files again, and changes no row."
        yield Difference(Aspect.LAYOUT, "", str(declaration.layout), str(found), CorrectedBy.LAYOUT, step)


def _property_correction(snapshot: Snapshot, name: str) -> tuple[CorrectedBy, str]:
    if name == _MAPPING:
        step = "rows that DuckDB has written since are NULL in every engine: see docs/compatibility.md before you change it."
        return CorrectedBy.NONE, step
    feature = _WITH_FEATURE.get(name)
    # The protocol of the table has to have the feature, and Spark knows which.
    plain = not name.startswith("delta.") or name in _WITHOUT_FEATURE
    plain = plain or (feature is not None and f"delta.feature.{feature}" in snapshot.properties)
    return CorrectedBy.COMMIT if plain else CorrectedBy.SPARK, _applied("change the declaration")


def _column_differences(snapshot: Snapshot, declaration: TableDeclaration) -> Iterator[Difference]:
    fields: list[Json] = json.loads(snapshot.metadata["schemaString"])["fields"]
    actual = {field["name"].lower(): field for field in fields}
    for column in declaration.columns:
        field = actual.pop(column.name.lower(), None)
        if field is None:
            yield _missing(column)
        else:
            yield from _of_column(column, field)
    for field in () if declaration.inferred else actual.values():
        step = f"Declare it. Without column mapping it cannot be dropped, so otherwise: {_AGAIN}"
        type_text = type_of_delta(field["type"]).spark
        yield Difference(Aspect.EXTRA, field["name"], "no such column", type_text, CorrectedBy.NONE, step)


def _missing(column: Column) -> Difference:
    none = "no such column"
    if not column.type:
        step = "The next run that finds it in its rows adds it."
        return Difference(Aspect.MISSING, column.name, "a column of any type", none, CorrectedBy.NONE, step)
    declared = sql_type(column.type).spark
    if column.nullable:
        return Difference(
            Aspect.MISSING, column.name, declared, none, CorrectedBy.COMMIT, _applied("take it from the declaration")
        )
    step = f"Existing rows have no value for it: let it be NULL. Otherwise: {_AGAIN}"
    return Difference(Aspect.MISSING, column.name, f"{declared} NOT NULL", none, CorrectedBy.NONE, step)


def _of_column(column: Column, field: Mapping[str, Any]) -> Iterator[Difference]:
    found = type_of_delta(field["type"]).spark
    if column.type and (declared := sql_type(column.type).spark) != found:
        step = f"Declare {found}: not every engine reads a widened type. Otherwise: {_AGAIN}"
        yield Difference(Aspect.TYPE, column.name, declared, found, CorrectedBy.NONE, step)
    if column.nullable != field["nullable"]:
        declared, actual = ("NULL", "NOT NULL") if column.nullable else ("NOT NULL", "NULL")
        step = _applied("declare `nullable: false`") if column.nullable else f"Declare it as nullable. Otherwise: {_AGAIN}"
        correction = CorrectedBy.COMMIT if column.nullable else CorrectedBy.NONE
        yield Difference(Aspect.NULLABLE, column.name, declared, actual, correction, step)
    metadata: Json = field.get("metadata") or {}
    comment: str = metadata.get("comment") or ""
    if column.comment and comment != column.comment:
        step = _applied("change its `description`")
        yield Difference(Aspect.COLUMN_COMMENT, column.name, column.comment, comment or _UNSET, CorrectedBy.COMMIT, step)


def _correct_column(fields: list[Json], aspect: Aspect, column: Column) -> None:
    field = next((field for field in fields if field["name"].lower() == column.name.lower()), None)
    if field is None:
        field = delta_field(column.name, sql_type(column.type))
        fields.append(field)
    if aspect is Aspect.NULLABLE:
        field["nullable"] = True
    elif column.comment:
        field["metadata"] = {**(field.get("metadata") or {}), "comment": column.comment}


def _logged_properties(snapshot: Snapshot) -> dict[str, str]:
    return dict(cast("Mapping[str, str]", snapshot.metadata.get("configuration") or {}))


_AGAIN = "drop the table, and materialize it again."


def _applied(otherwise: str) -> str:
    return f"`ratify drift --apply` corrects it; or {otherwise}."

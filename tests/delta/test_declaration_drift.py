"""Differences between a table and its declaration, and the commit that corrects them: without a server."""

import json
from dataclasses import replace
from typing import Any

import pytest

from ratify_lakehouse.declarations import Column, TableDeclaration
from ratify_lakehouse.delta.commit_actions import NothingToCommit
from ratify_lakehouse.delta.declaration_drift import Aspect, CorrectedBy, as_declared, differences, spark_statement
from ratify_lakehouse.delta.snapshot import Snapshot, SnapshotState
from tests.engines.lakehouse import pairs

DECLARED = pairs(
    columns=(Column("id", "bigint", "of a row", nullable=False), Column("tags", "array<string>")),
    properties={"catalog.team_name": "shop", "delta.enableChangeDataFeed": "true"},
)


def field(name: str, type_: Any, comment: str = "", *, nullable: bool = True) -> dict[str, Any]:
    metadata = {"comment": comment} if comment else {}
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}


ARRAY = {"type": "array", "elementType": "string", "containsNull": True}
FIELDS = (field("id", "long", "of a row", nullable=False), field("tags", ARRAY))


def table(fields: tuple[Any, ...] = FIELDS, catalog: dict[str, str] | None = None, **changed: Any) -> Snapshot:
    """A table as DECLARED; `changed` names properties with `_` for a dot, None: it lacks it."""
    changes = {name.replace("_", ".", 1): value for name, value in changed.items() if name != "description"}
    properties = {k: v for k, v in (DECLARED.created_properties | changes).items() if v is not None}
    metadata = {
        "description": changed.get("description", DECLARED.comment),
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "configuration": properties,
    }
    state = SnapshotState(metadata=metadata)
    return Snapshot("c.s.t", 3, "u", "file:///t", fields, properties | (catalog or {}), (), state)


def found(snapshot: Snapshot, declaration: TableDeclaration = DECLARED) -> list[tuple[str, str, str, str]]:
    return [
        (f"{d.aspect} {d.name}".rstrip(), d.declared, d.actual, d.correction.name)
        for d in differences(snapshot, declaration)
    ]


def test_a_table_as_declared() -> None:
    assert found(table()) == []
    with pytest.raises(NothingToCommit):
        as_declared(table(), DECLARED)
    # Engines set properties of their own.
    assert found(table(**{"delta_checkpointPolicy": "v2", "delta_columnMapping.mode": None})) == []


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        (table(catalog_team_name="x"), ("property catalog.team_name", "shop", "x", "COMMIT")),
        (table(ratify_owner=None), ("property ratify.owner", "data-platform", "not set", "COMMIT")),
        (table(catalog_classification="pii"), ("property catalog.classification", "not set", "pii", "COMMIT")),
        (table(delta_enableChangeDataFeed=None), ("property delta.enableChangeDataFeed", "true", "not set", "SPARK")),
        (table(**{"delta_columnMapping.mode": "name"}), ("property delta.columnMapping.mode", "none", "name", "NONE")),
        (table(**{"delta_constraints.c": "id > 0"}), ("property delta.constraints.c", "not set", "id > 0", "NONE")),
        (
            table(catalog={"catalog.team_name": "x"}),
            ("property catalog.team_name", "shop", "shop in the log, x in the catalog", "COMMIT"),
        ),
        (table(description="x"), ("comment", "of a test", "x", "COMMIT")),
        (table(FIELDS[:1]), ("missing column tags", "array<string>", "no such column", "COMMIT")),
        (table(FIELDS[1:]), ("missing column id", "bigint NOT NULL", "no such column", "NONE")),
        (table((*FIELDS, field("more", "long"))), ("extra column more", "no such column", "bigint", "NONE")),
        (table((FIELDS[0], field("tags", "string"))), ("type of column tags", "array<string>", "string", "NONE")),
        (table((field("id", "long", "of a row"), FIELDS[1])), ("NULL in column id", "NOT NULL", "NULL", "NONE")),
        (table((FIELDS[0], field("tags", ARRAY, nullable=False))), ("NULL in column tags", "NULL", "NOT NULL", "COMMIT")),
        (
            table((field("id", "long", "x", nullable=False), FIELDS[1])),
            ("comment of column id", "of a row", "x", "COMMIT"),
        ),
        (
            replace(table(), partition_columns=["id"]),
            ("layout", "neither partitioned nor clustered", "partitioned by id", "LAYOUT"),
        ),
    ],
)
def test_each_difference(snapshot: Snapshot, expected: tuple[str, str, str, str]) -> None:
    assert found(snapshot) == [expected]
    (difference,) = differences(snapshot, DECLARED)
    assert difference.next_step.endswith(".")
    if difference.correction is not CorrectedBy.COMMIT:
        with pytest.raises(NothingToCommit):
            as_declared(snapshot, DECLARED)
        return
    # After the commit there is no difference; the rest of the table is as before.
    metadata, updates = as_declared(snapshot, DECLARED).metadata or ({}, [])
    properties = dict(snapshot.properties)
    for update in updates:
        properties |= update.get("updates", {})
        properties = {k: v for k, v in properties.items() if k not in update.get("removals", ())}
    after = replace(snapshot, properties=properties, state=SnapshotState(metadata=metadata))
    assert found(after) == []
    names = [each["name"] for each in json.loads(metadata["schemaString"])["fields"]]
    assert names == ["id", "tags"]


def test_where_columns_are_inferred() -> None:
    inferred = replace(DECLARED, columns=(Column("id", "", nullable=False),), inferred=True)
    assert found(table(), inferred) == []
    assert found(table((*FIELDS, field("more", "long"))), inferred) == []
    assert found(table(FIELDS[1:]), inferred) == [("missing column id", "a column of any type", "no such column", "NONE")]


def test_what_the_catalog_and_spark_are_sent() -> None:
    proposal = as_declared(table(FIELDS[:1], catalog_x="y", delta_enableChangeDataFeed=None, description="x"), DECLARED)
    assert proposal.operation == "ADD COLUMNS"
    assert proposal.metadata
    removed, comment, columns = proposal.metadata[1]
    assert removed == {"action": "remove-properties", "removals": ["catalog.x"]}
    assert comment == {"action": "set-table-comment", "comment": "of a test"}
    array = {"type": "array", "element-type": "string", "contains-null": True}
    assert columns["columns"]["fields"][1]["type"] == array
    assert columns["columns"]["fields"][0]["metadata"] == {"comment": "of a row"}
    left = differences(table(delta_enableChangeDataFeed="false"), DECLARED)
    assert left[0].aspect is Aspect.PROPERTY
    assert spark_statement("c.s.t", left).endswith("SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    assert spark_statement("c.s.t", []) == ""

"""The two published specifications: read, corrected, and with real names and bodies to try them with."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import schemathesis
import yaml
from schemathesis.generation.meta import TestPhase

from tests.embedded.catalog.harness import COLUMNS, TableClient, add_commit, create_body, published, stage

Json = dict[str, Any]
Examples = Mapping[str, tuple[Json, list[Json]]]
"""By operation: parameters, and bodies, that are answered with success."""

UNITY, DELTA = "unity-catalog-2.1.yaml", "unity-catalog-delta-v1.yaml"
_METHODS = ("get", "head", "post", "put", "patch", "delete")
_SCHEMA = "/delta/v1/catalogs/{catalog}/schemas/{schema}"
_TABLE = _SCHEMA + "/tables/{table}"
_PERMISSIONS = "/permissions/{securable_type}/{full_name}"
_FIRST_BOUNDS, _ONE_BOUND_IN = 20, 17


class SpecCorrection(NamedTuple):
    """Another schema for `where`: a component, `Component.property`, `?parameter` or `/path?parameter`."""

    where: str
    schema: Json
    why: str


class Operation(NamedTuple):
    """One of a specification, by the name that schemathesis gives it."""

    label: str
    path: str
    definition: Json


def load(file: str) -> Json:
    """A specification as it was published, but that each operation has its own copy of the parameters of its path."""
    spec = yaml.safe_load(Path(__file__).with_name("spec").joinpath(file).read_text(encoding="utf-8"))
    shared = spec["components"].get("parameters", {})
    for _, path, definition in operations(spec):
        known = spec["paths"][path].get("parameters", []) + definition.get("parameters", [])
        definition["parameters"] = deepcopy(
            [shared[one["$ref"].rsplit("/", 1)[1]] if "$ref" in one else one for one in known]
        )
    for item in spec["paths"].values():
        item.pop("parameters", None)
    return spec


def operations(spec: Json) -> Iterator[Operation]:
    for path, item in spec["paths"].items():
        for method in _METHODS:
            if method in item:
                yield Operation(f"{method.upper()} {path}", path, item[method])


def body_of(operation: Operation) -> Json | None:
    """The JSON media type of the request body."""
    return operation.definition.get("requestBody", {}).get("content", {}).get("application/json")


def correct(spec: Json, corrections: Iterable[SpecCorrection]) -> None:
    """Apply those whose place is in this specification; a component keeps what the correction does not name."""
    schemas = spec["components"]["schemas"]
    for where, schema, _ in corrections:
        path, question, parameter = where.partition("?")
        component, dot, key = where.partition(".")
        if question:
            for operation in operations(spec):
                for one in operation.definition["parameters"]:
                    if one["name"] == parameter and path in ("", operation.path):
                        one["schema"] = deepcopy(schema)
        elif component in schemas and dot:
            schemas[component]["properties"][key] = deepcopy(schema)
        elif component in schemas:
            schemas[component] |= deepcopy(schema)


def show(spec: Json, examples: Examples) -> None:
    """Put the examples where schemathesis looks for them."""
    for operation in operations(spec):
        parameters, bodies = examples.get(operation.label, ({}, []))
        for one in operation.definition["parameters"]:
            if one["name"] in parameters:
                one["example"] = parameters[one["name"]]
        content = body_of(operation)
        if content is not None and bodies:
            content["examples"] = {f"example {number}": {"value": body} for number, body in enumerate(bodies)}


def create_examples(client: httpx.Client) -> Examples:
    """Make tables `t` (managed) and `e` (external) in `ratify.s`, and, each named after it, what examples will destroy."""
    for catalog in ("patched_catalog", "deleted_catalog"):
        client.post("/catalogs", json={"name": catalog}).raise_for_status()
    for schema in ("s", "patched_schema", "deleted_schema"):
        client.post("/schemas", json={"name": schema, "catalog_name": "ratify"}).raise_for_status()
    for name in ("e", "deleted", "delta_deleted", "renamed"):
        client.post("/tables", json=_external(name)).raise_for_status()
    table = TableClient.create(client, "s", "t")
    staged, finalized = stage(client, "s", "staged"), stage(client, "s", "finalized")

    at = {"catalog": "ratify", "schema": "s", "table": "t"}
    securable = {"securable_type": "table", "full_name": "ratify.s.t"}
    named = {"name": "made", "catalog_name": "ratify", "schema_name": "s"}
    uuid = {"type": "assert-table-uuid", "uuid": table.table_id}
    report = {"commit-report": {"num-files-added": 1, "num-bytes-added": 700}}
    return {
        "POST /catalogs": ({}, [{"name": "made", "comment": "c", "properties": {"k": "v"}}]),
        "GET /catalogs/{name}": ({"name": "ratify"}, []),
        "PATCH /catalogs/{name}": ({"name": "patched_catalog"}, [{"comment": "c"}]),
        "DELETE /catalogs/{name}": ({"name": "deleted_catalog"}, []),
        "POST /schemas": ({}, [{"name": "made", "catalog_name": "ratify"}]),
        "GET /schemas": ({"catalog_name": "ratify"}, []),
        "GET /schemas/{full_name}": ({"full_name": "ratify.s"}, []),
        "PATCH /schemas/{full_name}": ({"full_name": "ratify.patched_schema"}, [{"comment": "c"}]),
        "DELETE /schemas/{full_name}": ({"full_name": "ratify.deleted_schema"}, []),
        "POST /staging-tables": ({}, [named]),
        "POST /tables": ({}, [_external("made")]),
        "GET /tables": ({"catalog_name": "ratify", "schema_name": "s"}, []),
        "GET /tables/{full_name}": ({"full_name": "ratify.s.t"}, []),
        "DELETE /tables/{full_name}": ({"full_name": "ratify.s.deleted"}, []),
        "POST /temporary-table-credentials": ({}, [{"table_id": table.table_id, "operation": "READ"}]),
        "POST /temporary-path-credentials": ({}, [{"url": "file:///new", "operation": "PATH_READ"}]),
        f"GET {_PERMISSIONS}": (securable, []),
        f"PATCH {_PERMISSIONS}": (securable, [{"changes": [{"principal": "nobody", "add": [], "remove": ["SELECT"]}]}]),
        "GET /delta/v1/config": ({"catalog": "ratify", "protocol-versions": "1.0"}, []),
        f"POST {_SCHEMA}/staging-tables": (at, [{"name": "made"}]),
        f"POST {_SCHEMA}/tables": (at, [_delta_external("made"), create_body("finalized", finalized)]),
        f"GET {_TABLE}": (at, []),
        f"HEAD {_TABLE}": (at, []),
        f"POST {_TABLE}": (at, [{"requirements": [uuid], "updates": updates} for updates in _updates()]),
        f"DELETE {_TABLE}": (at | {"table": "delta_deleted"}, []),
        f"GET {_TABLE}/credentials": (at | {"operation": "READ_WRITE"}, []),
        f"POST {_TABLE}/metrics": (at, [{"table-id": table.table_id, "report": report}]),
        f"POST {_TABLE}/rename": (at | {"table": "renamed"}, [{"new-name": "made_by_rename"}]),
        "GET /delta/v1/staging-tables/{table_id}/credentials": ({"table_id": staged["table-id"]}, []),
        "GET /delta/v1/temporary-path-credentials": ({"location": "file:///new", "operation": "READ"}, []),
    }


def _external(name: str) -> Json:
    column = {"name": "id", "type_text": "bigint", "type_name": "LONG", "type_json": '"long"', "position": 0}
    return {
        "name": name,
        "catalog_name": "ratify",
        "schema_name": "s",
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "columns": [column],
        "storage_location": f"file:///lake/{name}",
    }


def _delta_external(name: str) -> Json:
    return {
        "name": name,
        "location": f"file:///lake/{name}",
        "table-type": "EXTERNAL",
        "columns": COLUMNS,
        "protocol": {"min-reader-version": 1, "min-writer-version": 2},
        "properties": {},
        "last-commit-timestamp-ms": 1_700_000_000_000,
    }


def _updates() -> Iterator[list[Json]]:
    yield [add_commit(1)]
    yield [published(1)]
    yield [{"action": "set-properties", "updates": {"k": "v"}}, {"action": "set-table-comment", "comment": "c"}]
    yield [{"action": "remove-properties", "removals": ["k"]}]
    yield [add_commit(2), {"action": "set-columns", "columns": COLUMNS}]


def some_bounds() -> Callable[[schemathesis.HookContext, schemathesis.Case], bool]:
    """Choose bounds for a short run: the first of each operation, and one in many of those of its nested schemas."""
    seen = Counter[str]()

    def filter_case(context: schemathesis.HookContext, case: schemathesis.Case) -> bool:
        if case.meta is None or case.meta.phase.name is not TestPhase.COVERAGE:
            return True
        number = seen[case.operation.label]
        seen[case.operation.label] += 1
        return number < _FIRST_BOUNDS or number % _ONE_BOUND_IN == 0

    return filter_case

"""The server against the published specifications: schemathesis sends what they allow, and what they forbid.

The tables below have every check that is off, and every correction of a specification; there are no others.
"""

import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Container
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import schemathesis
from schemathesis.engine import events, from_schema

from ratify_lakehouse.embedded.catalog.catalog_app import ROUTES
from tests.embedded.catalog.harness import API, CatalogProcess
from tests.embedded.catalog.published_requests import (
    DELTA,
    UNITY,
    Json,
    SpecCorrection,
    correct,
    create_examples,
    load,
    operations,
    show,
    some_bounds,
)

pytestmark = pytest.mark.server

_TABLES = "/delta/v1/catalogs/{catalog}/schemas/{schema}/tables"
# Operations without a route are left out; test_what_is_not_served_answers_501 has them.
# Checks that are off: `positive_data_acceptance` for these operations, because of rules that only prose has. What they
# must refuse, and how they answer, is checked all the same. (max_response_time is off as it is by default: bench/ times.)
_OVERLAP = "places do not overlap, which is more than any schema can say"
RULES_IN_PROSE = {
    **dict.fromkeys(("POST /catalogs", "POST /schemas", "POST /tables", "POST /temporary-path-credentials"), _OVERLAP),
    "GET /delta/v1/temporary-path-credentials": _OVERLAP,
    f"POST {_TABLES}": "the location is a staging table's, and protocol and properties fulfil the managed-table contract",
    f"POST {_TABLES}/{{table}}": "the shape rules, and which actions need a commit or a type of table",
    f"POST {_TABLES}/{{table}}/metrics": "table-id is the table's own, and the lists of a histogram are of one length",
    "GET /permissions/{securable_type}/{full_name}": "how many names full_name has depends on securable_type",
    "PATCH /permissions/{securable_type}/{full_name}": "and so does which privileges can be granted",
    "DELETE /catalogs/{name}": "what is not empty is not deleted but by force",
    "DELETE /schemas/{full_name}": "the same",
}
# `positive_data_acceptance` in chains of requests, where schemathesis takes a table's name for its full name.
NO_FULL_NAME = ("GET /tables/{full_name}", "DELETE /tables/{full_name}")

_ONE = "[^\\x00-\\x20\\x7f-\\x9f./\\u2028\\u2029]{1,255}"
_NAME = "the prose says name; object_names.check_name has the rule, which is wider than the reference server's"
_STORAGE = (
    "the prose says storage, of which this server has file: and s3:; object_names.normal_location has what else is refused"
)
_PLACE = {
    "anyOf": [
        {"type": "string", "pattern": "^file:///[a-z]{1,9}(/[a-z0-9]{1,9})?$"},
        {"type": "string", "pattern": "^(file|s3):/"},
    ]
}
_DATA_TYPE = {
    "anyOf": [
        {"enum": ["long", "string", "decimal(10,2)"]},
        {"type": "string"},
        *({"$ref": f"#/components/schemas/Delta{kind}Type"} for kind in ("Decimal", "Array", "Map", "Struct")),
    ]
}


def names(*known: str) -> Json:
    """Names that the server knows, or any others of as many parts."""
    pattern = "^" + r"\.".join([_ONE] * len(known[0].split("."))) + "$"
    return {"anyOf": [{"enum": list(known)}, {"type": "string", "pattern": pattern}]}


def at(places: str, schema: Json, why: str) -> list[SpecCorrection]:
    return [SpecCorrection(place, schema, why) for place in places.split()]


CORRECTIONS = [
    *at("?catalog ?catalog_name CreateSchema.catalog_name CreateTable.catalog_name CreateStagingTable.catalog_name",
        names("ratify"), _NAME),
    *at("?schema ?schema_name CreateTable.schema_name CreateStagingTable.schema_name", names("s"), _NAME),
    *at("?table CreateTable.name CreateStagingTable.name DeltaCreateTableRequest.name DeltaRenameTableRequest.new-name "
        "DeltaCreateStagingTableRequest.name", names("t", "e"), _NAME),
    *at("/catalogs/{name}?name CreateCatalog.name UpdateCatalog.new_name CreateSchema.name UpdateSchema.new_name",
        names("ratify", "s"), _NAME),
    *at("/schemas/{full_name}?full_name", names("ratify.s"), _NAME),
    *at("/tables/{full_name}?full_name", names("ratify.s.t", "ratify.s.e"), _NAME),
    *at("CreateCatalog.storage_root CreateSchema.storage_root CreateTable.storage_location ?location "
        "GenerateTemporaryPathCredential.url", _PLACE, _STORAGE),
    *at("?max_results", {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
        "the prose refuses what is below 0, and takes the least of this and the server's own bound"),
    *at("?read_streaming_table_as_managed ?read_materialized_view_as_managed", {},
        "this server has no such tables, and does not read these"),
    *at("?protocol-versions", {"type": "string", "pattern": r"^1\.[0-9](,[2-9]\.[0-9]){0,3}$"},
        "the prose has its form, and this server speaks 1.0"),
    *at("TableOperation", {"enum": ["READ", "READ_WRITE"]},
        "UNKNOWN_TABLE_OPERATION stands for none; the reference server refuses it, too"),
    *at("PathOperation", {"enum": ["PATH_READ", "PATH_READ_WRITE", "PATH_CREATE_TABLE"]},
        "UNKNOWN_PATH_OPERATION stands for none, likewise"),
    *at("CreateTable", {"required": ["name", "catalog_name", "schema_name", "table_type", "columns", "storage_location",
                                     "data_source_format"]}, "every table but a view has them, and views are not served"),
    *at("PermissionsChange", {"required": ["principal"]}, "databricks-sdk sends of add and remove only what it means"),
    *at("Privilege", {"enum": [*load(UNITY)["components"]["schemas"]["Privilege"]["enum"], "EXTERNAL USE SCHEMA"]},
        "Databricks requires it of external engines; see access_rules.py"),
    *at("NewColumn.name", {"type": "string", "minLength": 1, "maxLength": 255}, "a column without a name cannot be read"),
    *at("NewColumn", {"required": ["name"]}, "the same"),
    *at("CreateCatalog UpdateCatalog CreateSchema UpdateSchema CreateTable NewColumn CreateStagingTable UpdatePermissions "
        "PermissionsChange GenerateTemporaryTableCredential GenerateTemporaryPathCredential",
        {"additionalProperties": False},
        "a property that is ignored, such as owner, would be a success that is none"),
    *at("DeltaStorageCredential.expiration-time-ms", {"type": ["integer", "null"]},
        "file: storage has no credentials to expire; the reference server sends null, and its clients read it"),
    *at("DeltaStructFieldMetadata._placeholder", {}, "never sent: a marker for code generators, says its description"),
    *at("DeltaStructField.type DeltaArrayType.element-type DeltaMapType.key-type DeltaMapType.value-type", _DATA_TYPE,
        "DeltaDataType is but an object with a discriminator; its description has the names and the rest"),
]  # fmt: skip


MAY_SAY_NULL = {
    "CreateCatalog", "UpdateCatalog", "CreateSchema", "UpdateSchema", "CreateTable", "NewColumn",
    "DeltaReportMetricsRequest", "DeltaCreateTableRequest", "DeltaAddCommitUpdate", "DeltaDomainMetadataUpdates",
}  # fmt: skip


PROTECTED = {"ratify", "ratify.s", "ratify.s.t", "ratify.s.e", "t", "e"}
DROPS = {"DELETE /tables/{full_name}", f"DELETE {_TABLES}/{{table}}", f"POST {_TABLES}/{{table}}/rename"}
_NUMBERS = itertools.count()
# From so many examples on a run has every bound and every chain.
_FULL_LENGTH = 100


def published(file: str) -> Json:
    """The served part of a specification, corrected."""
    spec = load(file)
    served = {f"{method} {path}" for method, path, *_ in ROUTES}
    for label, path, _ in list(operations(spec)):
        if label not in served:
            del spec["paths"][path][label.split()[0].lower()]
    _declare_tokens(spec)
    _declare_errors(spec)
    _require_bodies(spec)
    if file == DELTA:
        _spell_unions(spec)
    else:
        _separate_columns(spec)
    correct(spec, CORRECTIONS)
    _admit_nulls(spec)
    return spec


def _declare_tokens(spec: Json) -> None:
    """Both specifications say in prose, or not at all, that every request needs a bearer token."""
    spec["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    spec["security"] = [{"token": []}]


def _declare_errors(spec: Json) -> None:
    """The 2.1 API declares none: these are the reference server's. delta/v1 has 501 in DeltaErrorType, on no operation."""
    error = {
        "type": "object",
        "required": ["error_code", "message", "details"],
        "additionalProperties": False,
        "properties": {"error_code": {"type": "string"}, "message": {"type": "string"}, "details": {"type": "array"}},
    }
    spec["components"]["schemas"]["Error"] = error
    which = "DeltaErrorResponse" if "DeltaErrorResponse" in spec["components"]["schemas"] else "Error"
    answer = {"description": which, "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{which}"}}}}
    for operation in operations(spec):
        for status in ("400", "401", "403", "404", "409", "501"):
            if which == "Error" or status == "501" or operation.label.startswith("HEAD"):
                operation.definition["responses"].setdefault(status, answer)


def _require_bodies(spec: Json) -> None:
    """The 2.1 API does not say that a body must be sent, though no request means anything without."""
    for operation in operations(spec):
        if "requestBody" in operation.definition:
            operation.definition["requestBody"]["required"] = True


def _spell_unions(spec: Json) -> None:
    """These two have but a discriminator, whose mapping says what they are one of."""
    schemas = spec["components"]["schemas"]
    for key, name in (("requirements", "DeltaTableRequirement"), ("updates", "DeltaTableUpdate")):
        kinds = schemas[name].pop("discriminator")["mapping"].values()
        schemas["DeltaUpdateTableRequest"]["properties"][key]["items"] = {"oneOf": [{"$ref": kind} for kind in kinds]}


def _separate_columns(spec: Json) -> None:
    """What a request may leave out, an answer need not."""
    schemas = spec["components"]["schemas"]
    schemas["NewColumn"] = deepcopy(schemas["ColumnInfo"])
    schemas["CreateTable"]["properties"]["columns"]["items"] = {"$ref": "#/components/schemas/NewColumn"}


def _admit_nulls(spec: Json) -> None:
    """A request may say null for what it leaves out, as clients in Java do and the reference server takes it."""
    spec["openapi"] = "3.1.1"  # 2.1's own has another way to say it.
    for name in MAY_SAY_NULL & spec["components"]["schemas"].keys():
        _admit_null(spec["components"]["schemas"][name])


def _admit_null(schema: Json) -> None:
    for key, value in schema.get("properties", {}).items():
        _admit_null(value)
        if key not in schema.get("required", []) and "default" not in value:
            schema["properties"][key] = {"anyOf": [value, {"type": "null"}]}


@dataclass
class PublishedRun:
    """What was answered, by operation, and what schemathesis found wrong."""

    answers: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    failures: dict[tuple[str, str], str] = field(default_factory=dict)

    def having(self, statuses: Container[int]) -> set[str]:
        """The operations that gave one of these."""
        return {label for label, seen in self.answers.items() if any(status in statuses for status in seen)}

    def take(self, event: events.EngineEvent) -> None:
        if isinstance(event, events.FatalError):
            raise event.exception
        if isinstance(event, events.NonFatalError):
            self.failures[type(event.value).__name__, event.label] = str(event.value)
        if not isinstance(event, events.ScenarioFinished):
            return
        for identity, node in event.recorder.cases.items():
            label, interaction = node.value.operation.label, event.recorder.interactions.get(identity)
            if interaction and interaction.response:
                self.answers[label][interaction.response.status_code] += 1
            for check in event.recorder.checks.get(identity, []):
                if check.failure_info:
                    found = check.failure_info
                    answer = interaction.response.text[:500] if interaction and interaction.response else ""
                    message = f"{found.failure.message}\n{found.code_sample}\n{answer}"
                    self.failures.setdefault((check.name, label), message)


@schemathesis.hook("before_call")
def protect_examples(context: schemathesis.HookContext, case: schemathesis.Case, kwargs: Json) -> None:
    """Protect what the examples name from destruction, so that later requests still find it."""
    names = case.path_parameters.get("full_name") or case.path_parameters.get("table") or case.path_parameters.get("name")
    if str(names) in PROTECTED:
        case.query.pop("force", None)
        if isinstance(case.body, dict):
            case.body = {key: value for key, value in case.body.items() if key != "new_name"}
        if case.operation.label in DROPS:
            case.path_parameters |= (
                {"table": "spared"} if "table" in case.path_parameters else {"full_name": "ratify.s.spared"}
            )


@schemathesis.hook("before_call")
def rename_created(context: schemathesis.HookContext, case: schemathesis.Case, kwargs: Json) -> None:
    """Give what the examples create a new name and location each time, so that the rest of a request decides.

    And 1.0, an integer to JSON Schema and to no client, becomes 1.
    """
    if isinstance(case.body, dict):
        text = json.dumps(case.body).replace('"made"', f'"made_{next(_NUMBERS)}"')
        case.body = json.loads(text.replace("file:///lake/made", f"file:///lake/{next(_NUMBERS)}"), parse_float=_whole)


def _whole(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


def run(spec: Json, server: CatalogProcess, token: str, examples: int, *, bounds: bool) -> PublishedRun:
    """The examples, random data and chains of requests, and, if asked, the bounds of each schema."""
    no, short = {"enabled": False}, examples < _FULL_LENGTH
    prose: Json = {"checks": {"positive_data_acceptance": no}}
    off = dict.fromkeys(RULES_IN_PROSE, prose)
    off |= {label: {"phases": {"stateful": prose}} for label in NO_FULL_NAME}
    config = schemathesis.Config.from_dict({
        "seed": 1,
        "base-url": server.url + API,
        "auth": {"openapi": {"token": {"bearer": token}}},
        "continue-on-failure": True,
        "cache": {"enabled": False},
        "analysis": {"constants": {"enabled": False}},
        # Who may nothing begins no chain: each of its requests is one that was sent alone before.
        "phases": {"coverage": {"enabled": bounds}, "stateful": {"enabled": bounds or not short}},
        "generation": {"max-examples": examples, "deterministic": True, "database": "none", "no-shrink": True},
        "checks": {
            "not_a_server_error": {"expected-statuses": ["2xx", "4xx", "501"]},
            "positive_data_acceptance": {"expected-statuses": ["2xx", "403", "404", "409", "501"]},
        },
        "operations": [{"include-name": label, **settings} for label, settings in off.items()],
    })  # fmt: skip
    schema = schemathesis.openapi.from_dict(spec, config=config)
    if short:
        schema.hook("filter_case")(some_bounds())
    found = PublishedRun()
    for event in from_schema(schema).execute():
        found.take(event)
    return found


# By file and principal; `nobody` has a token and no grant.
SHORT = [(file, who, 3) for file in (UNITY, DELTA) for who in ("admin", "nobody")]
LONG = [pytest.param(file, who, 300, marks=pytest.mark.long) for file, who, _ in SHORT]
# What a principal without a grant may ask, and is shown nothing of what others have.
OPEN = {
    "GET /catalogs", "GET /schemas", "GET /tables", "GET /metastore_summary",
    "GET /permissions/{securable_type}/{full_name}",
}  # fmt: skip


@pytest.mark.parametrize(("file", "who", "examples"), SHORT + LONG)
def test_every_answer_is_within_the_specification(tmp_path: Path, file: str, who: str, examples: int) -> None:
    server = CatalogProcess.start(tmp_path, principals={"nobody": []})
    spec = published(file)
    with server.client() as client:
        show(spec, create_examples(client))
    token = server.token if who == "admin" else (tmp_path / "nobody.token").read_text().strip()
    found = run(spec, server, token, examples, bounds=who == "admin")
    assert server.stop() == 0
    assert not found.failures, "\n\n".join(f"{key}: {message}" for key, message in found.failures.items())
    # Nothing was passed over: each operation gave a success, where it may, and a refusal of what was sent.
    served = {label for label, *_ in operations(spec)}
    succeeded, refused = found.having(range(200, 300)), found.having({400, 403, 404, 409})
    if who == "admin":
        assert succeeded == served
        assert refused == served - {"GET /metastore_summary"}  # It takes nothing.
    else:
        assert succeeded == served & OPEN
        assert refused >= served - OPEN


def test_what_is_not_served_answers_501(client: httpx.Client) -> None:
    served = {label for label, *_ in operations(published(UNITY))}
    for label, path, _ in operations(load(UNITY)):
        if label not in served:
            answer = client.request(label.split()[0], re.sub(r"\{\w+\}", "x", path), json={})
            assert (answer.status_code, answer.json()["error_code"]) == (501, "UNIMPLEMENTED"), label
    assert {label for label, *_ in operations(load(DELTA))} == {label for label, *_ in operations(published(DELTA))}

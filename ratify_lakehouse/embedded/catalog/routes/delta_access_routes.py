"""Configuration and credentials of the delta/v1 API (unity-catalog-delta-v1.yaml)."""

import re

from starlette.responses import JSONResponse, Response

from ratify_lakehouse.embedded.catalog.access_rules import LEVEL, PATH_LEVEL
from ratify_lakehouse.embedded.catalog.api_errors import InvalidParameterError, InvalidRequestError
from ratify_lakehouse.embedded.catalog.api_views import credentials_response
from ratify_lakehouse.embedded.catalog.endpoint import Call
from ratify_lakehouse.embedded.catalog.object_names import external_location
from ratify_lakehouse.embedded.catalog.store import table_store
from ratify_lakehouse.embedded.catalog.store.location_store import refuse_overlap

PROTOCOL_VERSION = "1.0"
ENDPOINTS = [
    "POST /v1/catalogs/{catalog}/schemas/{schema}/staging-tables",
    "POST /v1/catalogs/{catalog}/schemas/{schema}/tables",
    "GET /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}",
    "POST /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}",
    "DELETE /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}",
    "HEAD /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}",
    "POST /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}/rename",
    "GET /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}/credentials",
    "POST /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}/metrics",
    "GET /v1/staging-tables/{table_id}/credentials",
    "GET /v1/temporary-path-credentials",
    # Of this server alone: a client asks for these only where they are listed.
    "GET /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}/maintenance",
    "GET /v1/catalogs/{catalog}/schemas/{schema}/dropped-tables",
    "GET /v1/catalogs/{catalog}/dropped-tables",
    "GET /v1/catalogs/{catalog}/dropped-tables/{table_id}",
    "POST /v1/catalogs/{catalog}/schemas/{schema}/dropped-tables/{table_id}/undrop",
    "DELETE /v1/catalogs/{catalog}/schemas/{schema}/dropped-tables/{table_id}",
]
_VERSIONS = re.compile(r"\s*\d+\.\d+\s*(,\s*\d+\.\d+\s*)*")


def get_config(call: Call) -> Response:
    """Version negotiation: a client that speaks any 1.x speaks 1.0, the one version of this server."""
    catalog, versions = call.required("catalog"), call.required("protocol-versions")
    if not _VERSIONS.fullmatch(versions):
        raise InvalidParameterError(f"protocol-versions is {versions!r}; it must be a list such as 1.1,2.3.")
    if not any(version.strip().split(".")[0] == "1" for version in versions.split(",")):
        raise InvalidParameterError(f"No common protocol version; this server supports {PROTOCOL_VERSION}.")
    with call.read(catalog):
        pass
    return JSONResponse({"endpoints": ENDPOINTS, "protocol-version": PROTOCOL_VERSION})


def permitted_maintenance(call: Call) -> Response:
    """The maintenance that a principal who may write to a table may do to it, beyond commits that change rows.

    Delta's PROTOCOL.md ("Maintenance operations on catalog-managed tables") leaves it to the catalog to permit it.
    """
    names = call.path["catalog"], call.path["schema"], call.path["table"]
    with call.read(*names) as tx:
        table = table_store.get_table(tx, *names)
    return JSONResponse({"operations": call.store.maintenance if table.table_type == "MANAGED" else []})


def table_credentials(call: Call) -> Response:
    operation = _operation(call)
    names = call.path["catalog"], call.path["schema"], call.path["table"]
    with call.read(*names, also=LEVEL[operation]) as tx:
        table = table_store.get_table(tx, *names)
    return _vended(call, table.location, operation)


def staging_table_credentials(call: Call) -> Response:
    with call.read_id(call.path["table_id"]) as tx:
        staging = table_store.get_staging(tx, call.path["table_id"])
    return _vended(call, staging.location, "READ_WRITE")


def temporary_path_credentials(call: Call) -> Response:
    operation = _operation(call)
    with call.read(also=PATH_LEVEL[operation]) as tx:
        location = external_location(call.required("location"))
        refuse_overlap(tx, location)
    return _vended(call, location, operation)


def _vended(call: Call, location: str, operation: str) -> Response:
    return JSONResponse(credentials_response(location, operation, call.store.s3.vend(location, operation)))


def _operation(call: Call) -> str:
    operation = call.query.get("operation", "")
    if operation not in ("READ", "READ_WRITE"):
        raise InvalidRequestError(f"The query parameter 'operation' is {operation!r}; it must be READ or READ_WRITE.")
    return operation

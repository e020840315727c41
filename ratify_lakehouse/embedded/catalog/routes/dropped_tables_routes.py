"""Dropped managed tables, which can be undropped. The published API has no such paths; `delta/v1/config` lists them."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection
from starlette.responses import JSONResponse, Response

from ratify_lakehouse.embedded.catalog.access_rules import Privilege
from ratify_lakehouse.embedded.catalog.api_errors import PermissionDeniedError
from ratify_lakehouse.embedded.catalog.api_views import credentials_response, load_response
from ratify_lakehouse.embedded.catalog.endpoint import Call
from ratify_lakehouse.embedded.catalog.routes.purge import purge_dropped
from ratify_lakehouse.embedded.catalog.store import dropped_store, grant_store, namespace_store, table_updates


def list_dropped(call: Call) -> Response:
    """Those of the principal, and those where it may read or write all that they were dropped from.

    With the times, in epoch milliseconds, of their drop and of the end of their files.
    """
    with call.read(*_names(call)) as tx:
        seen = _seen(tx, call, dropped_store.list_dropped(tx, namespace_store.get_schema(tx, *_names(call))))
    return JSONResponse({"tables": [_shown(call, table) for table in seen]})


def list_of_catalog(call: Call) -> Response:
    """As `list_dropped`, of all schemas of a catalog, also of those that were dropped: each with the name of its schema."""
    with call.read(call.path["catalog"]) as tx:
        seen = _seen(tx, call, dropped_store.list_of_catalog(tx, namespace_store.get_catalog(tx, call.path["catalog"])))
    return JSONResponse({"tables": [{**_shown(call, table), "schema": table.schema} for table in seen]})


def _seen(tx: Connection, call: Call, found: Sequence[dropped_store.DroppedRow]) -> list[dropped_store.DroppedRow]:
    return [table for table in found if _has(tx, call, table.id, Privilege.SELECT | Privilege.MODIFY)]


def _shown(call: Call, table: dropped_store.DroppedRow) -> dict[str, Any]:
    return {
        "table-id": table.id,
        "name": table.name,
        "owner": table.owner,
        "dropped-at-ms": table.dropped_at,
        "retained-until-ms": table.dropped_at + call.store.dropped_table_seconds * 1000,
    }


def load_dropped(call: Call) -> Response:
    """A dropped table as loadTable answers, with credentials to read its files: for those who may undrop it."""
    table_id = call.path["table_id"]
    with call.read(call.path["catalog"]) as tx:
        loaded = dropped_store.dropped_table(tx, namespace_store.get_catalog(tx, call.path["catalog"]), table_id)
        if not _has(tx, call, table_id, Privilege.OWNER):
            raise PermissionDeniedError(f"{call.principal} needs OWNER on the dropped table {table_id}.")
        body = load_response(loaded)
    location = loaded.table.location
    return JSONResponse(body | credentials_response(location, "READ", call.store.s3.vend(location, "READ")))


def undrop_table(call: Call) -> Response:
    with call.write(*_names(call)) as tx:
        schema = _schema_for_owner(tx, call)
        table = dropped_store.undrop_table(tx, schema, call.path["table_id"])
        body = load_response(table_updates.load(tx, table))
    return JSONResponse(body)


def delete_dropped(call: Call) -> Response:
    with call.write(*_names(call)) as tx:
        dropped_store.delete_dropped(tx, _schema_for_owner(tx, call), call.path["table_id"])
    purge_dropped(call.store)
    return Response(status_code=204)


def _names(call: Call) -> tuple[str, str]:
    return call.path["catalog"], call.path["schema"]


def _has(tx: Connection, call: Call, table_id: str, wanted: Privilege) -> bool:
    return grant_store.effective_on_dropped(tx, call.principal, table_id).has(wanted)


def _schema_for_owner(tx: Connection, call: Call) -> namespace_store.Schema:
    """The schema in which a dropped table is listed. Raises NoSuchTableError, or PermissionDeniedError.

    To own that schema is enough only if the table was dropped from it: not from another one of its name.
    """
    schema, table_id = namespace_store.get_schema(tx, *_names(call)), call.path["table_id"]
    dropped_store.refuse_unlisted(tx, schema, table_id)
    if not _has(tx, call, table_id, Privilege.OWNER):
        raise PermissionDeniedError(
            f"{call.principal} needs OWNER on the dropped table {table_id}, or on what it was dropped from; "
            f"{'.'.join(_names(call))} is that only if it was not created since."
        )
    return schema

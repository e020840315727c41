"""Dropped managed tables, which can be undropped. The published API has no such paths; `delta/v1/config` lists them."""

from sqlalchemy import Connection
from starlette.responses import JSONResponse, Response

from embedded.catalog.access_rules import EffectivePrivileges, Privilege
from embedded.catalog.api_errors import PermissionDeniedError
from embedded.catalog.api_views import load_response
from embedded.catalog.endpoint import Call
from embedded.catalog.routes.purge import purge_dropped
from embedded.catalog.store import dropped_store, grant_store, namespace_store, table_updates


def list_dropped(call: Call) -> Response:
    """Those of the principal, and all where it may read or write the whole schema.

    With the times, in epoch milliseconds, of their drop and of the end of their files.
    """
    with call.read(*_names(call)) as tx:
        found = dropped_store.list_dropped(tx, namespace_store.get_schema(tx, *_names(call)))
        all_of_them = _on_schema(tx, call).has(Privilege.SELECT | Privilege.MODIFY)
    retention_ms = call.store.dropped_table_seconds * 1000
    listed = [
        {
            "table-id": table.id,
            "name": table.name,
            "owner": table.owner,
            "dropped-at-ms": table.dropped_at,
            "retained-until-ms": table.dropped_at + retention_ms,
        }
        for table in found
        if all_of_them or table.owner == call.principal
    ]
    return JSONResponse({"tables": listed})


def undrop_table(call: Call) -> Response:
    with call.write(*_names(call)) as tx:
        schema = _schema_if_owner(tx, call)
        table = dropped_store.undrop_table(tx, schema, call.path["table_id"])
        body = load_response(table_updates.load(tx, table))
    return JSONResponse(body)


def delete_dropped(call: Call) -> Response:
    with call.write(*_names(call)) as tx:
        dropped_store.delete_dropped(tx, _schema_if_owner(tx, call), call.path["table_id"])
    purge_dropped(call.store)
    return Response(status_code=204)


def _names(call: Call) -> tuple[str, str]:
    return call.path["catalog"], call.path["schema"]


def _on_schema(tx: Connection, call: Call) -> EffectivePrivileges:
    return grant_store.effective(tx, call.principal, _names(call))


def _schema_if_owner(tx: Connection, call: Call) -> namespace_store.Schema:
    """The schema of the dropped table. Raises NoSuchTableError, or PermissionDeniedError for others than its owners."""
    schema = namespace_store.get_schema(tx, *_names(call))
    owner = dropped_store.owner_of_dropped(tx, schema, call.path["table_id"])
    if owner != call.principal and not _on_schema(tx, call).has(Privilege.OWNER):
        where = ".".join(_names(call))
        raise PermissionDeniedError(
            f"{call.principal} needs OWNER on the dropped table, or on {where}, or on what holds it."
        )
    return schema

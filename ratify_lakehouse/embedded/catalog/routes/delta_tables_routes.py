"""Tables of the delta/v1 API (unity-catalog-delta-v1.yaml): create, load, update, drop, rename, metrics."""

from starlette.responses import JSONResponse, Response

from ratify_lakehouse.embedded.catalog import table_creation
from ratify_lakehouse.embedded.catalog.access_rules import to_place
from ratify_lakehouse.embedded.catalog.api_errors import CommitVersionConflictError, InvalidParameterError
from ratify_lakehouse.embedded.catalog.api_views import load_response, staging_response
from ratify_lakehouse.embedded.catalog.delta_models import (
    CreateDeltaStagingTable,
    CreateDeltaTable,
    RenameTable,
    ReportMetrics,
    UpdateTable,
)
from ratify_lakehouse.embedded.catalog.endpoint import Call
from ratify_lakehouse.embedded.catalog.routes.purge import purge_dropped
from ratify_lakehouse.embedded.catalog.store import dropped_store, namespace_store, table_store, table_updates


def create_staging_table(call: Call) -> Response:
    request = call.parse(CreateDeltaStagingTable)
    with call.write(*_schema(call)) as tx:
        schema = namespace_store.get_schema(tx, *_schema(call))
        staging = table_creation.create_staging_table(tx, schema, request.name, call.principal)
    return JSONResponse(staging_response(staging, call.store.s3.vend(staging.location, "READ_WRITE")))


def create_table(call: Call) -> Response:
    request = call.parse(CreateDeltaTable)
    with call.write(*_schema(call), also=to_place(request.table_type)) as tx:
        schema = namespace_store.get_schema(tx, *_schema(call))
        table = table_creation.create_delta_table(tx, schema, request, call.principal)
    return JSONResponse(load_response(table_updates.LoadedTable(table, [])))


def load_table(call: Call) -> Response:
    with call.read(*_names(call)) as tx:
        loaded = table_updates.load(tx, table_store.get_table(tx, *_names(call)))
    return JSONResponse(load_response(loaded))


def update_table(call: Call) -> Response:
    request = call.parse(UpdateTable)
    try:
        with call.write(*_names(call)) as tx:
            loaded = table_updates.update_table(tx, _names(call), request)
            # Inside the transaction: what cannot be answered must not be ratified.
            body = load_response(loaded)
    except CommitVersionConflictError:
        call.metrics.commits.labels("conflicted").inc()
        raise
    if loaded.outcome:
        call.metrics.commits.labels(loaded.outcome).inc()
    return JSONResponse(body)


def table_exists(call: Call) -> Response:
    with call.read(*_names(call)) as tx:
        table_store.get_table(tx, *_names(call))
    return Response(status_code=204)


def delete_table(call: Call) -> Response:
    with call.write(*_names(call)) as tx:
        dropped_store.drop_table(tx, table_store.get_table(tx, *_names(call)))
    purge_dropped(call.store)
    return Response(status_code=204)


def rename_table(call: Call) -> Response:
    request = call.parse(RenameTable)
    with call.write(*_names(call)) as tx:
        table_store.rename_table(tx, table_store.get_table(tx, *_names(call)), request.new_name)
    return Response(status_code=204)


def report_metrics(call: Call) -> Response:
    """Check a commit report, which every engine posts, and discard it: the published API has no way to read one."""
    request = call.parse(ReportMetrics)
    with call.read(*_names(call)) as tx:
        table = table_store.get_table(tx, *_names(call))
    if str(request.table_id) != table.id:
        raise InvalidParameterError(f"table-id {request.table_id} is not that of {table.full_name}, {table.id}.")
    return Response(status_code=204)


def _schema(call: Call) -> tuple[str, str]:
    return call.path["catalog"], call.path["schema"]


def _names(call: Call) -> tuple[str, str, str]:
    return call.path["catalog"], call.path["schema"], call.path["table"]

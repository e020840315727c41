"""New tables from either API, checked before they are stored."""

from dataclasses import replace

from sqlalchemy import Connection

from ratify_lakehouse.embedded.catalog import table_contract
from ratify_lakehouse.embedded.catalog.api_errors import InvalidParameterError, NotSupportedError
from ratify_lakehouse.embedded.catalog.api_models import CreateTable
from ratify_lakehouse.embedded.catalog.column_json import partition_columns_of, struct_of
from ratify_lakehouse.embedded.catalog.delta_models import CreateDeltaTable
from ratify_lakehouse.embedded.catalog.object_names import external_location, normal_location
from ratify_lakehouse.embedded.catalog.store.catalog_database import new_id, now_ms
from ratify_lakehouse.embedded.catalog.store.location_store import refuse_overlap
from ratify_lakehouse.embedded.catalog.store.namespace_store import Schema
from ratify_lakehouse.embedded.catalog.store.table_store import (
    StagingTable,
    Table,
    create_staging,
    finalize_staging,
    insert_table,
    refuse_taken,
)
from ratify_lakehouse.embedded.catalog.store.table_updates import check_table, new_etag


def create_staging_table(tx: Connection, schema: Schema, name: str, owner: str) -> StagingTable:
    """createStagingTable of either API: an id and a location for a managed table. Raises AlreadyExistsError."""
    root = schema.storage_location or schema.catalog.storage_location
    return create_staging(tx, schema.id, root, name, owner)


def create_delta_table(tx: Connection, schema: Schema, request: CreateDeltaTable, owner: str) -> Table:
    """createTable of delta/v1: finalize a staging table at version 0, or register an external Delta table.

    Raises AlreadyExistsError, NoSuchTableError (no staging table at the location) or InvalidParameterError (the contract).
    """
    table_contract.refuse_derived(list(request.properties))
    table = replace(
        _blank(schema, request.name, request.table_type, owner),
        comment=request.comment,
        columns=request.columns,
        partition_columns=request.partition_columns,
        properties=request.properties,
        protocol=request.protocol.model_dump(by_alias=True),
        domains=request.domain_metadata.domains() if request.domain_metadata else {},
        last_update_version=0,
        last_commit_timestamp=request.last_commit_timestamp_ms,
    )
    table = _place(tx, table, request.location)
    check_table(table)
    insert_table(tx, table)
    return table


def create_table(tx: Connection, schema: Schema, request: CreateTable, owner: str) -> Table:
    """createTable of the 2.1 API: an external table of any format, or the finalization of a staging table.

    Raises AlreadyExistsError, NoSuchTableError, InvalidParameterError, or NotSupportedError for views.
    """
    view = request.view_definition is not None or request.view_dependencies is not None
    if view or request.table_type not in ("MANAGED", "EXTERNAL"):
        raise NotSupportedError("Views are not supported; use table_type MANAGED or EXTERNAL, without view_….")
    if not request.storage_location or not request.data_source_format:
        raise InvalidParameterError(
            "storage_location and data_source_format are required; POST /staging-tables allocates managed locations."
        )
    infos = [column.model_dump(exclude_unset=True) for column in request.columns]
    table = replace(
        _blank(schema, request.name, request.table_type, owner),
        data_source_format=request.data_source_format,
        comment=request.comment,
        columns=struct_of(infos),
        partition_columns=partition_columns_of(infos),
        properties=request.properties or {},
    )
    table = _place(tx, table, request.storage_location)
    table = _as_managed(table) if table.managed else table
    check_table(table)
    insert_table(tx, table)
    return table


def _blank(schema: Schema, name: str, table_type: str, owner: str) -> Table:
    now = now_ms()
    return Table(
        id=new_id(),
        catalog_name=schema.catalog.name,
        schema_name=schema.name,
        schema_id=schema.id,
        name=name,
        table_type=table_type,
        etag=new_etag(),
        owner=owner,
        created_at=now,
        updated_at=now,
    )


def _place(tx: Connection, table: Table, location: str) -> Table:
    refuse_taken(tx, table.schema_id, table.name)
    if not table.managed:
        external = external_location(location)
        refuse_overlap(tx, external)
        return replace(table, location=external)
    staging = finalize_staging(tx, table.schema_id, normal_location(location), table.owner)
    return replace(table, id=staging.id, location=staging.location, latest_version=0, backfilled_version=0)


def _as_managed(table: Table) -> Table:
    if table.data_source_format != "DELTA":
        raise InvalidParameterError(f"A managed table is a Delta table, not {table.data_source_format}.")
    timestamp = table.properties.get("delta.lastCommitTimestamp", "")
    return replace(
        table,
        protocol=table_contract.protocol_of_properties(table.properties),
        properties={key: value for key, value in table.properties.items() if not table_contract.is_derived(key)},
        last_update_version=0,
        last_commit_timestamp=int(timestamp) if timestamp.isdigit() else table.created_at,
    )

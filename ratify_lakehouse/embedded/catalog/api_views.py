"""What the server answers: the store's rows in the terms of the two specifications.

Fields without a value are left out: the reference server sends null, which neither specification allows.
"""

import json
from typing import Any
from urllib.parse import unquote

from ratify_lakehouse.embedded.catalog import table_contract
from ratify_lakehouse.embedded.catalog.api_errors import UnsupportedTableFormatError
from ratify_lakehouse.embedded.catalog.column_json import column_infos
from ratify_lakehouse.embedded.catalog.managed_storage import Credentials
from ratify_lakehouse.embedded.catalog.store.namespace_store import Catalog, Schema
from ratify_lakehouse.embedded.catalog.store.table_store import StagingTable, Table
from ratify_lakehouse.embedded.catalog.store.table_updates import LoadedTable

Json = dict[str, Any]


def catalog_info(catalog: Catalog) -> Json:
    """CatalogInfo."""
    return _info(catalog, "properties", "storage_root", "storage_location", id=catalog.id)


def schema_info(schema: Schema) -> Json:
    """SchemaInfo."""
    catalog = schema.catalog.name
    own = {"schema_id": schema.id, "catalog_name": catalog, "full_name": f"{catalog}.{schema.name}"}
    return _info(schema, "properties", "storage_root", "storage_location", **own)


def table_info(table: Table) -> Json:
    """TableInfo."""
    own = {"table_id": table.id, "storage_location": table.location, "properties": all_properties(table)}
    columns = [_present(column) for column in column_infos(table.columns, table.partition_columns)]
    return _info(table, "catalog_name", "schema_name", "table_type", "data_source_format", columns=columns, **own)


def staging_table_info(staging: StagingTable, schema: Schema) -> Json:
    """StagingTableInfo."""
    return {
        "name": staging.name,
        "catalog_name": schema.catalog.name,
        "schema_name": schema.name,
        "id": staging.id,
        "staging_location": staging.location,
    }


def all_properties(table: Table) -> dict[str, str]:
    """A table's properties with the keys that the catalog derives (DeltaTableMetadata.properties)."""
    derived: dict[str, Any] = {}
    if table.protocol:
        derived["delta.minReaderVersion"] = table.protocol["min-reader-version"]
        derived["delta.minWriterVersion"] = table.protocol["min-writer-version"]
        derived |= {f"delta.feature.{feature}": "supported" for feature in table.protocol["writer-features"]}
    if table.last_update_version is not None:
        derived["delta.lastUpdateVersion"] = table.last_update_version
        derived["delta.lastCommitTimestamp"] = table.last_commit_timestamp
    if table_contract.CLUSTERING in table.domains:
        paths = table.domains[table_contract.CLUSTERING]["clusteringColumns"]
        derived["delta.clusteringColumns"] = json.dumps(paths, separators=(",", ":"))
    if table_contract.ROW_TRACKING in table.domains:
        mark = table.domains[table_contract.ROW_TRACKING]["rowIdHighWaterMark"]
        derived["delta.rowTracking.rowIdHighWaterMark"] = mark
    return {**table.properties, **{key: str(value) for key, value in derived.items()}}


def load_response(loaded: LoadedTable) -> Json:
    """DeltaLoadTableResponse. Raises UnsupportedTableFormatError unless it is a Delta table."""
    table = loaded.table
    if table.data_source_format != "DELTA":
        raise UnsupportedTableFormatError(
            f"{table.full_name} ({table.data_source_format}) is not a Delta table; use GET /api/2.1/unity-catalog/tables."
        )
    metadata: Json = {
        "etag": table.etag,
        "table-type": table.table_type,
        "table-uuid": table.id,
        "location": table.location,
        "created-time": table.created_at,
        "updated-time": table.updated_at,
        "columns": table.columns,
        "partition-columns": table.partition_columns,
        "properties": all_properties(table),
    }
    if table.last_update_version is not None:
        metadata["last-commit-version"] = table.last_update_version
        metadata["last-commit-timestamp-ms"] = table.last_commit_timestamp
    if not table.managed:
        return {"metadata": metadata}
    return {"metadata": metadata, "commits": loaded.commits, "latest-table-version": table.latest_version}


def staging_response(staging: StagingTable, vended: Credentials | None) -> Json:
    """DeltaStagingTableResponse. No column mapping is suggested: see `table_contract`."""
    return {
        "table-id": staging.id,
        "table-type": "MANAGED",
        # Not encoded: Delta's client makes a path of this one, which encodes it, while it reads other locations as URLs.
        "location": unquote(staging.location),
        **credentials_response(staging.location, "READ_WRITE", vended),
        "required-protocol": table_contract.required_protocol(),
        "suggested-protocol": {"reader-features": [], "writer-features": []},
        "required-properties": table_contract.required_properties(staging.id),
        "suggested-properties": {},
    }


def credentials_response(location: str, operation: str, vended: Credentials | None) -> Json:
    """DeltaCredentialsResponse; on file: storage the config is empty and nothing expires."""
    config: Json = {}
    if vended:
        config = {
            "s3.access-key-id": vended.access_key_id,
            "s3.secret-access-key": vended.secret_access_key,
            "s3.session-token": vended.session_token,
        }
    expires_at = vended.expires_at if vended else None
    credential: Json = {"prefix": location, "operation": operation, "config": config, "expiration-time-ms": expires_at}
    return {"storage-credentials": [credential]}


def temporary_credentials(location: str, vended: Credentials | None) -> Json:
    """TemporaryCredentials of the 2.1 API; on file: storage there are none."""
    if vended is None:
        return {"url": location}
    aws = {
        "access_key_id": vended.access_key_id,
        "secret_access_key": vended.secret_access_key,
        "session_token": vended.session_token,
    }
    return {"aws_temp_credentials": aws, "expiration_time": vended.expires_at, "url": location}


def _info(item: Catalog | Schema | Table, *names: str, **own: Any) -> Json:
    shared = ("name", "comment", "owner", "created_at", "updated_at")
    return _present({name: getattr(item, name) for name in (*shared, *names)} | own)


def _present(info: Json) -> Json:
    return {key: value for key, value in info.items() if value is not None}

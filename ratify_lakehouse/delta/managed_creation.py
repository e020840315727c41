"""Managed tables that are created by the catalog's own API: no engine is needed, and none of its seconds.

The catalog names a place for the table (createStagingTable of the `delta/v1` API), the log's first version is written there,
and with createTable the catalog has it. A table is as CREATE TABLE of Spark makes it; Spark still creates those whose
properties may need a feature of Delta that is not known here, and what it writes itself.
"""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from ratify_lakehouse.catalog.unity_catalog import API, UnityCatalog
from ratify_lakehouse.column_types import delta_field, sql_type
from ratify_lakehouse.declarations import (
    APPEND_ONLY,
    CHANGE_DATA_FEED,
    ROW_TRACKING,
    Engine,
    TableDeclaration,
    records_changes,
)
from ratify_lakehouse.delta.commit_actions import engine_info
from ratify_lakehouse.delta.schema_change import catalog_column
from ratify_lakehouse.delta.snapshot import Json
from ratify_lakehouse.delta.table_storage import TableStorage
from ratify_lakehouse.errors import CatalogError, TableMissing
from ratify_lakehouse.table_layout import Layout

_STAGES = "POST /v1/catalogs/{catalog}/schemas/{schema}/staging-tables"
_CLUSTERING = "delta.clustering"

_PLAIN = frozenset(
    {
        *(APPEND_ONLY, CHANGE_DATA_FEED, ROW_TRACKING, "delta.columnMapping.mode", "delta.isolationLevel"),
        *("delta.checkpointInterval", "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"),
        *("delta.deletedFileRetentionDuration", "delta.logRetentionDuration", "delta.setTransactionRetentionDuration"),
        *("delta.targetFileSize", "delta.tuneFileSizesForRewrites"),
    }
)
"""Properties of Delta of which it is known which features they need."""


def creates(catalog: UnityCatalog, declaration: TableDeclaration) -> bool:
    """Return whether a table is created here: DuckDB writes it, the catalog offers it, and all features needed are known."""
    if declaration.writer is not Engine.DUCKDB:
        return False
    if not {name for name in declaration.created_properties if name.startswith("delta.")} <= _PLAIN:
        return False
    return catalog.offers(declaration.full_name(catalog.connection.name).split(".", 1)[0], _STAGES)


def create_table(catalog: UnityCatalog, declaration: TableDeclaration) -> bool:
    """Create a table, in a schema that exists; return whether this did it, and not another process at the same moment.

    Raises:
        CatalogDenied, CatalogRejected, CatalogUnavailable, StorageUnavailable, StorageUnsupported: it was not created.
    """
    full_name = declaration.full_name(catalog.connection.name)
    name, schema, table = full_name.split(".")
    path, what, table_id = f"{API}/delta/v1/catalogs/{name}/schemas/{schema}", f"create {full_name}", ""
    try:
        staged = catalog.request("POST", what, f"{path}/staging-tables", {"name": table})
        table_id = staged["table-id"]
        body = created_body(staged, declaration)
        _write(TableStorage(staged["location"], lambda: staged["storage-credentials"]), first_actions(table_id, body))
        fields = [catalog_column(field) for field in body["columns"]["fields"]]
        catalog.request("POST", what, f"{path}/tables", body | {"columns": {"type": "struct", "fields": fields}})
    except CatalogError:
        # Another process was faster, or the answer to a request that was carried out was lost.
        with suppress(TableMissing):
            return catalog.table(full_name).table_id == table_id
        raise
    return True


def _write(storage: TableStorage, actions: Sequence[Json]) -> None:
    storage.write(f"_delta_log/{0:020d}.json", "".join(f"{json.dumps(action)}\n" for action in actions).encode())
    if storage.local:
        # DuckDB's extension does not make it.
        (storage.local / "_delta_log/_staged_commits").mkdir(exist_ok=True)


def created_body(staged: Json, declaration: TableDeclaration) -> Json:
    """Return what createTable is asked, with the columns as Delta's schema has them; `staged`: the staging table."""
    fields = [
        delta_field(column.name, sql_type(column.type))
        | {"nullable": column.nullable, "metadata": {"comment": column.comment} if column.comment else {}}
        for column in declaration.columns
    ]
    # Delta switches row tracking on, unless the declaration says otherwise.
    properties = {ROW_TRACKING: "true", **declaration.created_properties}
    return body_of(staged, declaration.name, fields, properties, declaration.layout, declaration.comment)


def body_of(
    staged: Json, name: str, fields: Sequence[Json], properties: Mapping[str, str], layout: Layout, comment: str = ""
) -> Json:
    """Return what createTable is asked.

    Args:
        staged: The staging table.
        name: Of the table.
        fields: The columns, as Delta's schema has them.
        properties: The table's.
        layout: How it is divided.
        comment: The table's; empty for none.
    """
    properties = {**staged["required-properties"], **properties}
    protocol: Json = {**staged["required-protocol"]}
    features, domains = {"invariants", "appendOnly"}, dict[str, Any]()
    if properties[ROW_TRACKING] == "true":
        features |= {"domainMetadata", "rowTracking"}
        names = {"CommitVersion": "row-commit-version", "Id": "row-id"}
        properties |= {
            f"delta.rowTracking.materializedRow{key}ColumnName": f"_{name}-col-{uuid4()}" for key, name in names.items()
        }
    if records_changes(properties):
        features.add("changeDataFeed")
    if layout.cluster_by:
        features |= {"domainMetadata", "clustering"}
        domains[_CLUSTERING] = {"clusteringColumns": [[name] for name in layout.cluster_by]}
    protocol["writer-features"] = [*protocol["writer-features"], *sorted(features)]
    return {
        "name": name,
        "location": staged["location"],
        "table-type": "MANAGED",
        "columns": {"type": "struct", "fields": list(fields)},
        "partition-columns": list(layout.partition_by),
        "protocol": protocol,
        "properties": properties,
        "last-commit-timestamp-ms": time.time_ns() // 1_000_000,
        **({"comment": comment} if comment else {}),
        **({"domain-metadata": domains} if domains else {}),
    }


def first_actions(table_id: str, body: Json) -> list[Json]:
    """Return the actions of a table's version 0, given the id of the staging table, and what createTable is asked."""
    features = {f"{kind}Features": body["protocol"][f"{kind}-features"] for kind in ("reader", "writer")}
    versions = {f"min{kind}Version": body["protocol"][f"min-{kind.lower()}-version"] for kind in ("Reader", "Writer")}
    metadata: Json = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(body["columns"]),
        "partitionColumns": body["partition-columns"],
        "configuration": body["properties"],
        "createdTime": body["last-commit-timestamp-ms"],
        **({"description": body["comment"]} if "comment" in body else {}),
    }
    domains = body.get("domain-metadata", {}).items()
    return [
        {"commitInfo": _info(body)},
        {"protocol": versions | features},
        {"metaData": metadata},
        *({"domainMetadata": {"domain": d, "configuration": json.dumps(c), "removed": False}} for d, c in domains),
    ]


def _info(body: Json) -> Json:
    clustered: Json = body.get("domain-metadata", {}).get(_CLUSTERING, {})
    parameters = {
        "partitionBy": json.dumps(body["partition-columns"]),
        "clusterBy": json.dumps([name for (name,) in clustered.get("clusteringColumns", [])]),
        "isManaged": "true",
        "properties": json.dumps(body["properties"]),
        **({"description": body["comment"]} if "comment" in body else {}),
    }
    return {
        "timestamp": body["last-commit-timestamp-ms"],
        "inCommitTimestamp": body["last-commit-timestamp-ms"],
        "operation": "CREATE TABLE",
        "operationParameters": parameters,
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {},
        "engineInfo": engine_info(),
        "txnId": str(uuid4()),
    }

"""Declared tables on a catalog server as Spark creates them, and rows in them: in milliseconds, and without an engine.

For tests whose subject is not how a table comes to be. `test_declared_tables.py` compares both ways.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from ratify_lakehouse.column_types import delta_field, sql_type
from ratify_lakehouse.declarations import ROW_TRACKING as TRACKS_ROWS
from ratify_lakehouse.declarations import Column, TableDeclaration, records_changes
from ratify_lakehouse.delta.managed_creation import body_of
from ratify_lakehouse.delta.schema_change import catalog_column
from ratify_lakehouse.embedded.catalog.table_contract import ROW_TRACKING
from ratify_lakehouse.engines.duckdb.parquet_files import ParquetFile, write_parquet
from ratify_lakehouse.sql.duckdb_sql import identifier, literal
from ratify_lakehouse.table_layout import NO_LAYOUT, Layout
from tests.embedded.catalog.harness import SPARK, TableClient, delta, log_of, stage, write_first_commit
from tests.process_duckdb import cursor

_MARK = "rowIdHighWaterMark"


def create_declared(admin: httpx.Client, *declarations: TableDeclaration) -> None:
    """Create tables in the catalog `ratify`, and their schemas, which may be there."""
    for schema in {declaration.layer: None for declaration in declarations}:
        made = admin.post("/schemas", json={"name": schema, "catalog_name": "ratify"})
        assert made.status_code in (200, 409), made.text
    for declaration in declarations:
        # Delta switches row tracking on, unless the declaration says otherwise.
        properties = {TRACKS_ROWS: "true", **declaration.created_properties}
        fields = [_field(column) for column in declaration.columns]
        answer = create_table(admin, declaration.table_name, fields, properties, declaration.comment, declaration.layout)
        assert answer.status_code == 200, answer.text


def create_table(
    client: httpx.Client,
    name: str,
    fields: list[dict[str, Any]],
    properties: Mapping[str, str],
    comment: str = "",
    layout: Layout = NO_LAYOUT,
    filled: Callable[[Path], ParquetFile] | None = None,
) -> httpx.Response:
    """Create a table as Spark does: write its version 0, then tell the catalog. Return the catalog's answer.

    Args:
        client: A client of the catalog `ratify`.
        name: `<schema>.<table>`, in a schema that exists.
        fields: The columns, as Delta's schema has them.
        properties: The table's; row tracking is off unless they switch it on.
        comment: The table's; empty for none.
        layout: How it is divided.
        filled: Writes the file at a path, for a table that begins with rows.
    """
    schema, table = name.split(".")
    staged = stage(client, schema, table)
    body = body_of(staged, table, fields, {TRACKS_ROWS: "false", **properties}, layout, comment)
    rows = list[dict[str, Any]]()
    if filled:
        folder, path = log_of(staged["location"]).parent, f"{uuid4()}.parquet"
        folder.mkdir(parents=True)
        file = filled(folder / path)
        add = {"path": path, "partitionValues": {}, "size": file.size, "stats": json.dumps(file.stats)}
        add |= {"modificationTime": body["last-commit-timestamp-ms"], "dataChange": True}
        if body["properties"][TRACKS_ROWS] == "true":
            add |= {"baseRowId": 0, "defaultRowCommitVersion": 0}
            rows.append(_marked(file.rows - 1))
        rows.append({"add": add})
    write_first_commit(staged["table-id"], body, rows)
    known = [catalog_column(field) for field in fields]
    return client.post(f"{delta(schema)}/tables", json=body | {"columns": {"type": "struct", "fields": known}})


def _marked(last_row_id: int) -> dict[str, Any]:
    mark = json.dumps({_MARK: last_row_id})
    return {"domainMetadata": {"domain": ROW_TRACKING, "configuration": mark, "removed": False}}


def _field(column: Column) -> dict[str, Any]:
    comment = {"comment": column.comment} if column.comment else {}
    return delta_field(column.name, sql_type(column.type)) | {"nullable": column.nullable, "metadata": comment}


def insert_rows(admin: httpx.Client, declaration: TableDeclaration, select: str, **info: Any) -> int:
    """Append the rows of a query of DuckDB in the order of the table's columns, as INSERT of Spark does; return the version.

    `info`: more of the `commitInfo`.
    """
    table = TableClient.of(admin, declaration.layer, declaration.name)
    loaded = table.load()
    adds = _data_files(log_of(table.location).parent, declaration, select)
    rows, size = sum(json.loads(add["stats"])["numRecords"] for add in adds), sum(add["size"] for add in adds)
    about = _info(loaded, "WRITE", {"mode": "Append", "partitionBy": "[]"}, isBlindAppend=True, **info)
    about["operationMetrics"] = {"numFiles": str(len(adds)), "numOutputRows": str(rows), "numOutputBytes": str(size)}
    actions = [{"commitInfo": about}]
    for add in adds:
        add |= {"modificationTime": about["timestamp"], "dataChange": True}
        actions.append({"add": add})
    if "delta.feature.rowTracking" in loaded["metadata"]["properties"]:
        version, last = loaded["latest-table-version"] + 1, _last_row_id(table.location, loaded["latest-table-version"])
        for add in adds:
            add |= {"baseRowId": last + 1, "defaultRowCommitVersion": version}
            last += json.loads(add["stats"])["numRecords"]
        actions.append(_marked(last))
    return table.commit(actions)


def set_properties(admin: httpx.Client, name: str, properties: Mapping[str, str]) -> int:
    """Do what `ALTER TABLE … SET TBLPROPERTIES` of Spark does to `<schema>.<table>`; return the version."""
    table = TableClient.of(admin, *name.split("."))
    loaded = table.load()
    parameters = {"properties": json.dumps(dict(properties))}
    actions = [{"commitInfo": _info(loaded, "SET TBLPROPERTIES", parameters, isBlindAppend=True)}]
    latest, updates = loaded["latest-table-version"], [{"action": "set-properties", "updates": dict(properties)}]
    stored = _last(table.location, latest, "metaData")
    actions.append({"metaData": {**stored, "configuration": {**stored["configuration"], **properties}}})
    protocol = _last(table.location, latest, "protocol")
    if records_changes(properties) and "changeDataFeed" not in protocol["writerFeatures"]:
        protocol["writerFeatures"].append("changeDataFeed")
        actions.append({"protocol": protocol})
        features = {f"{kind}-features": protocol[f"{kind}Features"] for kind in ("reader", "writer")}
        versions = {f"min-{kind}-version": protocol[f"min{kind.title()}Version"] for kind in ("reader", "writer")}
        updates.append({"action": "set-protocol", "protocol": versions | features})
    return table.commit(actions, *updates)


def _info(loaded: dict[str, Any], operation: str, parameters: dict[str, str], **more: Any) -> dict[str, Any]:
    """The `commitInfo` of the commit that follows what the catalog has of a table."""
    now = max(time.time_ns() // 1_000_000, loaded["metadata"]["last-commit-timestamp-ms"] + 1)
    return {
        "inCommitTimestamp": now,
        "timestamp": now,
        "operation": operation,
        "operationParameters": parameters,
        "readVersion": loaded["latest-table-version"],
        "isolationLevel": "Serializable",
        "operationMetrics": {},
        "engineInfo": SPARK,
        "txnId": str(uuid4()),
        **more,
    }


def _data_files(folder: Path, declaration: TableDeclaration, select: str) -> list[dict[str, Any]]:
    """Write the rows, a file for each combination of the partition columns' values."""
    by = [identifier(name) for name in declaration.layout.partition_by]
    typed = {identifier(column.name): sql_type(column.type).sql for column in declaration.columns}
    kept = ", ".join(f"{name}::{type_} AS {name}" for name, type_ in typed.items() if name not in by)
    adds = list[dict[str, Any]]()
    with cursor() as con:
        con.execute("SET TimeZone = 'UTC'")
        con.execute(f"CREATE TEMP TABLE given AS SELECT * FROM ({select}) AS given({', '.join(typed)})")
        texts = [f"{name}::VARCHAR" for name in by]
        for values in con.execute(f"SELECT DISTINCT {', '.join(texts) or '1'} FROM given ORDER BY ALL").fetchall():
            partition = dict(zip(declaration.layout.partition_by, values, strict=False))
            path = "".join(f"{name}={value}/" for name, value in partition.items()) + f"part-00000-{uuid4()}-c000.parquet"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            wanted = [literal(value) if value is not None else "NULL" for value in partition.values()]
            here = [f"{text} IS NOT DISTINCT FROM {value}" for text, value in zip(texts, wanted, strict=True)]
            written = write_parquet(con, f"SELECT {kept} FROM given WHERE {' AND '.join(here) or 'true'}", folder / path)
            stats = json.dumps(written.stats)
            adds.append({"path": path, "partitionValues": partition, "size": written.size, "stats": stats})
    return adds


def _last_row_id(location: str, latest: int) -> int:
    """The greatest row id, as the latest commit that says it does; -1 in a table without rows."""
    domain = _last(location, latest, "domainMetadata", lambda found: found["domain"] == ROW_TRACKING)
    return int(json.loads(domain["configuration"])[_MARK]) if domain else -1


def _last(location: str, latest: int, kind: str, wanted: Callable[[Any], bool] = bool) -> Any:
    """The latest action of a kind, from the published commits; None where there is none."""
    for version in range(latest, -1, -1):
        for line in (log_of(location) / f"{version:020d}.json").read_text().splitlines():
            if (action := json.loads(line).get(kind)) and wanted(action):
                return action
    return None

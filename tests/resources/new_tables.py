"""A table as Spark creates it: version 0 is written, then the catalog has it. No engine runs but DuckDB, for its rows."""

import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx

from resources.declarations import records_changes
from resources.delta.schema_change import catalog_column
from resources.delta.snapshot import ROW_TRACKING
from resources.duckdb.duckdb_engine import DuckDB
from resources.duckdb.parquet_files import write_parquet
from tests.embedded.catalog.harness import client_of, create_body, delta, stage

TRACKING = "delta.enableRowTracking"
_ROW_IDS = {f"delta.rowTracking.materialized{name}ColumnName": f"_{name}" for name in ("RowId", "RowCommitVersion")}


def catalog_client(duckdb: DuckDB) -> httpx.Client:
    """Return a client of the catalog that the engine is attached to."""
    return client_of(duckdb.catalog.connection.host, duckdb.catalog.bearer_token())


class NewTable:
    """A table that does not exist yet."""

    def __init__(
        self, duckdb: DuckDB, name: str, properties: Mapping[str, str], fields: list[dict[str, Any]], comment: str
    ) -> None:
        self._client = catalog_client(duckdb)
        self._schema, self._name = name.split(".")
        self._properties, self._fields, self._comment = properties, fields, comment

    def create(self, con: Any, query: str, *, may_exist: bool) -> None:
        with self._client:
            staged = stage(self._client, self._schema, self._name)
            body = self._body(staged)
            root = Path(unquote(urlsplit(staged["location"]).path))
            # Spark makes the folder of proposed commits with the table, and not later.
            (root / "_delta_log" / "_staged_commits").mkdir(parents=True)
            adds = list[dict[str, Any]]()
            if query:
                written = write_parquet(con, query, root / (path := f"{uuid.uuid4()}.parquet"))
                add = {"path": path, "partitionValues": {}, "size": written.size, "modificationTime": _now()}
                add |= {"dataChange": True, "stats": json.dumps(written.stats)}
                if self._properties[TRACKING] == "true":
                    add |= {"baseRowId": 0, "defaultRowCommitVersion": 0}
                    mark = json.dumps({"rowIdHighWaterMark": written.rows - 1})
                    adds.append({"domainMetadata": {"domain": ROW_TRACKING, "configuration": mark, "removed": False}})
                adds.append({"add": add})
            lines = [*self._first(body, "CREATE TABLE" + (" AS SELECT" if query else "")), *adds]
            (root / "_delta_log" / f"{0:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
            answer = self._client.post(f"{delta(self._schema)}/tables", json=body)
            # Another process may create it at the same moment.
            assert answer.status_code == 200 or (may_exist and answer.status_code == 409), answer.text

    def _body(self, staged: dict[str, Any]) -> dict[str, Any]:
        body = create_body(self._name, staged)
        features = ["appendOnly", "invariants"]
        if records_changes(self._properties):
            features.append("changeDataFeed")
        properties = dict(self._properties)
        if properties[TRACKING] == "true":
            features += ["domainMetadata", "rowTracking"]
            properties |= _ROW_IDS
        body["protocol"]["writer-features"] = [*body["protocol"]["writer-features"], *features]
        body["properties"] |= properties
        columns = {"type": "struct", "fields": [catalog_column(field) for field in self._fields]}
        given = {"comment": self._comment} if self._comment else {}
        return body | given | {"columns": columns, "last-commit-timestamp-ms": _now()}

    def _first(self, body: dict[str, Any], operation: str) -> list[dict[str, Any]]:
        protocol, now = body["protocol"], body["last-commit-timestamp-ms"]
        info = {"timestamp": now, "inCommitTimestamp": now, "operation": operation, "operationParameters": {}}
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": self._fields}),
            **({"description": self._comment} if self._comment else {}),
            "partitionColumns": [],
            "configuration": body["properties"],
            "createdTime": now,
        }
        features = {"readerFeatures": protocol["reader-features"], "writerFeatures": protocol["writer-features"]}
        return [
            {"commitInfo": info | {"isBlindAppend": True, "operationMetrics": {}, "txnId": str(uuid.uuid4())}},
            {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
            {"metaData": metadata},
        ]


def _now() -> int:
    return time.time_ns() // 1_000_000

"""A Delta table whose log and files a test writes itself, and its log as a reader has it: no catalog runs, and no engine."""

import json
from pathlib import Path
from typing import Any, cast

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.errors import CommitConflict
from ratify_lakehouse.sql.duckdb_sql import literal
from tests.process_duckdb import cursor

FEED = "delta.enableChangeDataFeed"
NAME = "c.s.t"


class WrittenTable:
    """A table in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.latest, self.known_principal = folder, -1, None
        self._metadata: dict[str, Any] = {}
        (folder / "_delta_log").mkdir()

    def commit(self, *actions: dict[str, Any], **info: Any) -> int:
        """Commit actions as the next version, and return it."""
        self.latest += 1
        for action in actions:
            self._metadata = action.get("metaData", self._metadata)
        lines = [{"commitInfo": {"timestamp": 1_000 * (self.latest + 1), "operation": "WRITE", **info}}, *actions]
        self.log_file(self.latest).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return self.latest

    def commits(self, until: int) -> None:
        """Commit versions that change nothing."""
        while self.latest < until:
            self.commit()

    def checkpoint(self) -> None:
        """Write a checkpoint of the latest version, with the table's metadata alone."""
        path = self.folder / "_delta_log" / f"{self.latest:020d}.checkpoint.parquet"
        fields = "{'schemaString': $schema, 'partitionColumns': $by, 'configuration': $properties::MAP(VARCHAR, VARCHAR)}"
        given = {
            "schema": self._metadata["schemaString"],
            "by": self._metadata["partitionColumns"],
            "properties": duckdb_map(self._metadata["configuration"]),
        }
        with cursor() as con:
            con.execute(f"COPY (SELECT {fields} AS metaData) TO {literal(str(path))} (FORMAT parquet)", given)

    def cut(self, first: int) -> None:
        """Remove what the log has of the versions before one."""
        for path in (self.folder / "_delta_log").iterdir():
            if int(path.name.partition(".")[0]) < first:
                path.unlink()

    def log_file(self, version: int) -> Path:
        return self.folder / "_delta_log" / f"{version:020d}.json"

    def data(self, select: str, name: str, **more: Any) -> dict[str, Any]:
        """Write the rows of a query of DuckDB to a file, and return what `add`, `remove` and `cdc` say of it."""
        with cursor() as con:
            con.execute(f"COPY ({select}) TO {literal(str(self.folder / name))} (FORMAT parquet)")
        return {"path": name, "size": (self.folder / name).stat().st_size, "partitionValues": {}, "dataChange": True, **more}

    def log(self) -> DeltaLog:
        return DeltaLog(cast("UnityCatalog", self), NAME, attempts=1, patience=0)

    def update_table(self, full_name: str, requirements: Any, updates: list[dict[str, Any]]) -> dict[str, Any]:
        """Ratify a staged commit, as the catalog does it."""
        (asked,) = [update["commit"] for update in updates if update["action"] == "add-commit"]
        if asked["version"] != self.latest + 1:
            raise CommitConflict("another was first")
        staged = self.folder / "_delta_log" / "_staged_commits" / asked["file-name"]
        self.latest += 1
        for line in staged.read_text().splitlines():
            self._metadata = json.loads(line).get("metaData", self._metadata)
        return {**self.load_table(full_name), "commits": [asked]}

    def load_table(self, full_name: str) -> dict[str, Any]:
        """What the catalog answers of it."""
        assert full_name == NAME
        return {
            "latest-table-version": self.latest,
            "metadata": {
                "table-uuid": "1",
                "location": self.folder.as_uri(),
                "columns": json.loads(self._metadata["schemaString"]),
                "properties": self._metadata["configuration"],
                "partition-columns": self._metadata["partitionColumns"],
            },
        }


def duckdb_map(of: dict[str, str]) -> dict[str, list[str]]:
    """A parameter of DuckDB that is a map."""
    return {"key": list(of), "value": list(of.values())}


def metadata(*partition_columns: str, columns: dict[str, Any] | None = None, **properties: str) -> dict[str, Any]:
    """A `metaData` action of a table with a feed, whose columns are `id` and `v` unless it is said; `_` stands for a dot."""
    types = columns or {"id": "long", "v": "string"}
    fields = [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in types.items()]
    configuration = {FEED: "true"} | {name.replace("_", "."): value for name, value in properties.items()}
    schema = json.dumps({"type": "struct", "fields": fields})
    return {
        "metaData": {"schemaString": schema, "partitionColumns": list(partition_columns), "configuration": configuration}
    }

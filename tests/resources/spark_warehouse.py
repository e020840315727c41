"""Spark in place of a SQL warehouse: it runs the statements of a local workspace, and answers in the shape of the API."""

import datetime as dt
import json
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.resources.workspace_server import Engine, failed

_CHUNK = 3
"""Rows of a chunk of a result: few, so that there are several."""


def spark_engine(session: SparkSession) -> Engine:
    """Return an engine whose legacy metastore is the catalog of Spark's own."""

    def run(statement: str, parameters: dict[str, str | None]) -> dict[str, Any]:
        text = statement.replace("hive_metastore.", "spark_catalog.")
        try:
            return answer(session.sql(text, args=cast("dict[str, Any]", parameters)))
        except PySparkException as error:
            return failed(str(error), sql_state=error.getSqlState())
        except Exception as error:  # noqa: BLE001 the server has an answer in any case
            return failed(repr(error))

    return run


def answer(frame: DataFrame) -> dict[str, Any]:
    """Return a result as the API has it: all values are texts, in chunks."""
    rows = [[_text(value) for value in row] for row in frame.collect()]
    columns = [
        {"name": name, "position": place, "type_text": type_.upper(), "type_name": type_.upper().partition("<")[0]}
        for place, (name, type_) in enumerate(frame.dtypes)
    ]
    parts = [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
    chunks = [
        {
            "chunk_index": number,
            "row_count": len(part),
            "row_offset": number * _CHUNK,
            "data_array": part,
            **({"next_chunk_index": number + 1} if number + 1 < len(parts) else {}),
        }
        for number, part in enumerate(parts)
    ]
    manifest = {
        "format": "JSON_ARRAY",
        "schema": {"column_count": len(columns), "columns": columns},
        "total_chunk_count": len(chunks),
        "total_row_count": len(rows),
        "truncated": False,
    }
    result = chunks[0] if chunks else {"row_count": 0}
    return {"status": {"state": "SUCCEEDED"}, "manifest": manifest, "result": result, "chunks": chunks}


def _text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case dt.datetime():
            return value.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case list() | dict():
            return json.dumps(value)
        case _:
            return str(value)

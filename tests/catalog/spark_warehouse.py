"""Spark in place of a SQL warehouse: it runs the statements of a local workspace, and answers in the shape of the API."""

import datetime as dt
import json
import re
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ratify_lakehouse.sql.spark_sql import literal
from tests.catalog.workspace_server import Engine, failed

_MARKER = re.compile(r"""'(?:[^'\\]|\\.)*'|`[^`]*`|:(\w+)""", re.DOTALL)
_CHUNK = 3
"""Rows of a chunk of a result: few, so that there are several."""


def spark_engine(session: SparkSession) -> Engine:
    """Return an engine whose legacy metastore is the catalog of Spark's own."""

    def run(statement: str, parameters: dict[str, str | None]) -> dict[str, Any]:
        text = statement.replace("hive_metastore.", "spark_catalog.")
        try:
            return answer(session.sql(_bound(text, parameters)))
        except PySparkException as error:
            return failed(str(error), sql_state=error.getSqlState())
        except Exception as error:  # noqa: BLE001 the server has an answer in any case
            return failed(repr(error))

    return run


def _bound(text: str, parameters: dict[str, str | None]) -> str:
    """A statement with its parameters in it: with the SQL parser of Delta, Spark 4.2 binds none."""

    def value(found: re.Match[str]) -> str:
        if not found[1]:
            return found[0]
        given = parameters[found[1]]
        return "CAST(NULL AS STRING)" if given is None else literal(given)

    return _MARKER.sub(value, text) if parameters else text


def answer(frame: DataFrame) -> dict[str, Any]:
    """Return a result as the API has it: all values are texts, in chunks."""
    rows = [[_text(value) for value in row] for row in frame.collect()]
    columns = [
        {"name": name, "position": place, "type_text": type_.upper(), "type_name": _type_name(type_.upper())}
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


def _type_name(type_text: str) -> str:
    name = re.split(r"[(<]", type_text)[0]
    return {"BIGINT": "LONG", "SMALLINT": "SHORT", "TINYINT": "BYTE"}.get(name, name)


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

"""Tables with any features together, written by hand as PROTOCOL.md has them: without Spark, one takes some milliseconds."""

import json
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import httpx

from ratify_lakehouse.sql.duckdb_sql import identifier, literal
from tests.embedded.catalog.harness import create_body, delta, stage

Json = dict[str, Any]
Row = tuple[Any, ...]

COLUMNS: Mapping[str, str] = {
    "id": "BIGINT",
    "p": "VARCHAR",
    "d": "DATE",
    "b": "BOOLEAN",
    "n": "INTEGER",
    "s": "STRUCT(a INTEGER, b VARCHAR)",
    "v": "VARCHAR",
}
PARTITIONED_BY = ("p", "d", "b", "n")
SHOWN = ", ".join(f"CAST({name} AS VARCHAR)" for name in COLUMNS)
# In two files, whose rows have the same values in the columns that may be partitions.
FILES: Sequence[Sequence[Row]] = (
    ((1, "b/c d", "2013-01-01", "true", 7, "{'a': 1, 'b': x}", "one"), (2, *("b/c d", "2013-01-01", "true", 7), None, None)),
    ((3, None, None, None, None, "{'a': NULL, 'b': NULL}", "three"),),
)
ROWS = [tuple(None if value is None else str(value) for value in row) for file in FILES for row in file]
_DELETED: Row = (9, "b/c d", "2013-01-01", "true", 7, None, "deleted")
_TYPES = {"BIGINT": "long", "VARCHAR": "string", "DATE": "date", "BOOLEAN": "boolean", "INTEGER": "integer"}
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


@dataclass
class Made:
    """What a table is made of. Features change it."""

    mapping: str = "none"
    partitions: Sequence[str] = ()
    vectors: bool = False
    clustered: bool = False
    older_type: bool = False
    without: str = ""
    readers: set[str] = field(default_factory=set[str])
    writers: set[str] = field(default_factory=set[str])
    properties: dict[str, str] = field(default_factory=dict[str, str])
    metadata: dict[str, Json] = field(default_factory=dict[str, Json])
    required: set[str] = field(default_factory=set[str])

    def physical(self, name: str) -> str:
        return name.rpartition(".")[2] if self.mapping == "none" else f"col-{uuid.uuid5(uuid.NAMESPACE_OID, name)}"


def _mapped(mode: str) -> Callable[[Made], None]:
    def change(made: Made) -> None:
        made.mapping = mode
        made.readers.add("columnMapping")
        made.properties |= {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "20"}

    return change


def _partitioned(made: Made) -> None:
    made.partitions = PARTITIONED_BY


def _with_vectors(made: Made) -> None:
    made.vectors = True


def _clustered(made: Made) -> None:
    made.clustered = True
    made.writers |= {"clustering", "domainMetadata"}


def _tracked(made: Made) -> None:
    made.writers |= {"rowTracking", "domainMetadata"}
    made.properties["delta.enableRowTracking"] = "true"
    for kind in ("RowId", "RowCommitVersion"):
        made.properties[f"delta.rowTracking.materialized{kind}ColumnName"] = f"_{kind}"


def _with_property(key: str, value: str, writer: str = "") -> Callable[[Made], None]:
    def change(made: Made) -> None:
        made.properties[key] = value
        made.writers |= {writer} if writer else set()

    return change


def _with_metadata(writer: str, **metadata: str) -> Callable[[Made], None]:
    def change(made: Made) -> None:
        made.writers.add(writer)
        made.metadata["v"] = {name.replace("_", "."): value for name, value in metadata.items()}

    return change


def _widened(made: Made) -> None:
    made.older_type = True
    made.readers.add("typeWidening")
    made.properties["delta.enableTypeWidening"] = "true"
    made.metadata["id"] = {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}


def _without_a_column(made: Made) -> None:
    made.without = "v"


def _not_null(made: Made) -> None:
    made.required.add("id")


FEATURES: Mapping[str, Callable[[Made], None]] = {
    "column mapping by name": _mapped("name"),
    "column mapping by id": _mapped("id"),
    "partitions": _partitioned,
    "deletion vectors": _with_vectors,
    "liquid clustering": _clustered,
    "row tracking": _tracked,
    "change data feed": _with_property("delta.enableChangeDataFeed", "true", "changeDataFeed"),
    "append-only": _with_property("delta.appendOnly", "true", "appendOnly"),
    "CHECK constraints": _with_property("delta.constraints.positive", "id > 0", "checkConstraints"),
    "default values": _with_metadata("allowColumnDefaults", CURRENT_DEFAULT="'none'"),
    "generated columns": _with_metadata("generatedColumns", delta_generationExpression="'v'"),
    "NOT NULL columns": _not_null,
    "type widening": _widened,
    "an older file without a column": _without_a_column,
}


# Features that say something of the writers alone.
_OF_WRITERS = frozenset({"append-only", "CHECK constraints", "default values", "generated columns", "NOT NULL columns"})


def combined(*, of_writers: bool) -> Iterator[tuple[str, ...]]:
    """Each feature alone, and all pairs of them; a table has one kind of mapping, and one layout.

    `of_writers`: of the pairs, those with a feature of writers, or all others.
    """
    if not of_writers:
        yield from ((name,) for name in FEATURES)
    # The last two are said of one column.
    exclusive = (
        {"column mapping by name", "column mapping by id"},
        {"partitions", "liquid clustering"},
        {"default values", "generated columns"},
    )
    for pair in combinations(FEATURES, 2):
        if set(pair) not in exclusive and of_writers == bool(_OF_WRITERS & set(pair)):
            yield pair


@dataclass(frozen=True)
class HandMadeTable:
    """A table of a running catalog, and the rows that it has."""

    schema: str
    name: str
    rows: Sequence[Row]

    @classmethod
    def create(
        cls, client: httpx.Client, con: duckdb.DuckDBPyConnection, schema: str, features: Sequence[str]
    ) -> "HandMadeTable":
        made, name = Made(), f"t_{uuid.uuid4().hex[:8]}"
        for feature in features:
            FEATURES[feature](made)
        staged = stage(client, schema, name)
        body: Json = create_body(name, staged) | {"last-commit-timestamp-ms": time.time_ns() // 1_000_000}
        protocol: Json = dict(body["protocol"])
        protocol["reader-features"] = sorted({*protocol["reader-features"], *made.readers})
        protocol["writer-features"] = sorted({*protocol["writer-features"], *made.writers, *made.readers})
        body |= {
            "protocol": protocol,
            "properties": {**body["properties"], **made.properties},
            "columns": {"type": "struct", "fields": [_field(made, *each) for each in enumerate(COLUMNS.items())]},
            "partition-columns": list(made.partitions),
        }
        if made.clustered:
            body["domain-metadata"] = {"delta.clustering": {"clusteringColumns": [[made.physical("id")]]}}
        _write(con, Path(urlsplit(body["location"]).path), staged["table-id"], body, made)
        answer = client.post(f"{delta(schema)}/tables", json=body)
        assert answer.status_code == 200, answer.text
        return cls(schema, name, [_read(made, row) for row in ROWS])

    @property
    def full_name(self) -> str:
        return f"ratify.{self.schema}.{self.name}"

    @property
    def attached(self) -> str:
        return f"uc.{self.schema}.{self.name}"


def _read(made: Made, row: Row) -> Row:
    """A row as it is to be read: the first file may be older than a column."""
    return (*row[:-1], None) if made.without and row[0] != "3" else row


def _field(made: Made, number: int, column: tuple[str, str]) -> Json:
    name, type_ = column
    nested = name == "s"
    metadata: Json = {**made.metadata.get(name, {})}
    if made.mapping != "none":
        metadata |= _mapping(made, name, number + 1)
    inner = [
        {
            "name": part,
            "type": inner_type,
            "nullable": True,
            "metadata": {} if made.mapping == "none" else _mapping(made, f"s.{part}", 15 + at),
        }
        for at, (part, inner_type) in enumerate({"a": "integer", "b": "string"}.items())
    ]
    known = {"type": "struct", "fields": inner} if nested else _TYPES[type_]
    return {"name": name, "type": known, "nullable": name not in made.required, "metadata": metadata}


def _mapping(made: Made, name: str, id_: int) -> Json:
    return {"delta.columnMapping.id": id_, "delta.columnMapping.physicalName": made.physical(name)}


def _write(con: duckdb.DuckDBPyConnection, folder: Path, table_id: str, body: Json, made: Made) -> None:
    """The first commit, and its files."""
    features = {"readerFeatures": body["protocol"]["reader-features"], "writerFeatures": body["protocol"]["writer-features"]}
    now = body["last-commit-timestamp-ms"]
    metadata = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(body["columns"]),
        "partitionColumns": list(made.partitions),
        "configuration": body["properties"],
        "createdTime": now,
    }
    info = {"timestamp": now, "inCommitTimestamp": now, "operation": "WRITE", "operationParameters": {}, "txnId": table_id}
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    actions: list[Json] = [{"commitInfo": info}, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}]
    actions.append({"metaData": metadata})
    if "domainMetadata" in made.writers:
        for domain, value in body.get("domain-metadata", {}).items():
            configuration = json.dumps({**value, "domainName": domain})
            actions.append({"domainMetadata": {"domain": domain, "configuration": configuration, "removed": False}})
    first = 0
    for number, rows in enumerate(FILES):
        # The deleted row is the first one of its file.
        stored = [*([_DELETED] if made.vectors and not number else []), *rows]
        actions.append({"add": _added(con, folder, f"{number}.parquet", stored, made, oldest=not number)})
        if "rowTracking" in made.writers:
            actions[-1]["add"] |= {"baseRowId": first, "defaultRowCommitVersion": 0}
        first += len(stored)
    if "rowTracking" in made.writers:
        mark = json.dumps({"rowIdHighWaterMark": first - 1})
        actions.append({"domainMetadata": {"domain": "delta.rowTracking", "configuration": mark, "removed": False}})
    (log / f"{0:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def _added(
    con: duckdb.DuckDBPyConnection, folder: Path, name: str, rows: Sequence[Row], made: Made, *, oldest: bool
) -> Json:
    columns = [column for column in COLUMNS if column not in made.partitions and not (oldest and column == made.without)]
    selected, ids = list[str](), list[str]()
    for column in columns:
        type_ = "INTEGER" if column == "id" and made.older_type and oldest else COLUMNS[column]
        value = f"CAST({column} AS {type_})"
        if column == "s":
            parts = ", ".join(f"{identifier(made.physical(f's.{part}'))} := s.{part}" for part in ("a", "b"))
            value = f"CASE WHEN s IS NOT NULL THEN struct_pack({parts}) END"
        selected.append(f"{value} AS {identifier(made.physical(column))}")
        own, name_ = str([*COLUMNS].index(column) + 1), identifier(made.physical(column))
        nested = ", ".join(f"{identifier(made.physical(f's.{part}'))}: {15 + at}" for at, part in enumerate("ab"))
        ids.append(f"{name_}: {f'{{__duckdb_field_id: {own}, {nested}}}' if column == 's' else own}")
    listed = ", ".join(f"({', '.join('NULL' if value is None else literal(str(value)) for value in row)})" for row in rows)
    typed = ", ".join(f"CAST({column} AS {type_}) AS {column}" for column, type_ in COLUMNS.items())
    source = f"SELECT {typed} FROM (VALUES {listed}) AS r({', '.join(COLUMNS)})"
    options = "" if made.mapping == "none" else f", FIELD_IDS {{{', '.join(ids)}}}"
    con.execute(
        f"COPY (SELECT {', '.join(selected)} FROM ({source})) TO {literal(str(folder / name))} (FORMAT parquet{options})"
    )
    values = dict(zip(COLUMNS, rows[0], strict=True))
    numbers = [int(row[0]) for row in rows]
    own = made.physical("id")
    stats = {"numRecords": len(rows), "minValues": {own: min(numbers)}, "maxValues": {own: max(numbers)}}
    add: Json = {
        "path": name,
        "partitionValues": {
            made.physical(column): None if values[column] is None else str(values[column]) for column in made.partitions
        },
        "size": (folder / name).stat().st_size,
        "modificationTime": 1,
        "dataChange": True,
        "stats": json.dumps({**stats, "tightBounds": not made.vectors}),
    }
    if made.vectors and oldest:
        bitmap = struct.pack("<IQIIIHHIH", 1681511377, 1, 0, 12346, 1, 0, 0, 16, 0)
        vector = {"storageType": "i", "pathOrInlineDv": z85(bitmap), "sizeInBytes": len(bitmap), "cardinality": 1}
        add["deletionVector"] = vector
    return add


def z85(content: bytes) -> str:
    """The text of bytes in Z85, filled up with zeros."""
    text = ""
    for start in range(0, len(content), 4):
        (number,) = struct.unpack(">I", content[start : start + 4].ljust(4, b"\0"))
        letters = ""
        for _ in range(5):
            letters = _Z85[number % 85] + letters
            number //= 85
        text += letters
    return text

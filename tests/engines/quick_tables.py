"""Statements of Spark SQL in milliseconds: DuckDB computes the rows, and our own commits make the tables.

For all that is around a test's subject: tables to begin with, what others change, and a look at the result. What Spark
alone writes (deletion vectors, MERGE, other ALTERs) is asked of Spark. A RESTORE takes it as long as six other statements.
"""

import datetime as dt
import re
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial, reduce
from pathlib import Path
from typing import Any, cast

import httpx
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ratify_lakehouse.column_types import SqlType, delta_field, sql_type, type_of_delta
from ratify_lakehouse.declarations import CHANGE_DATA_FEED, records_changes
from ratify_lakehouse.delta.commit_actions import Proposal
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.snapshot import DataFile, Snapshot
from ratify_lakehouse.delta.table_version import table_version, version_at
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.duckdb.live_rows import LiveRows, live_rows
from ratify_lakehouse.engines.duckdb.parquet_files import put_data_file, write_parquet
from ratify_lakehouse.engines.duckdb.query_types import spark_types
from ratify_lakehouse.scratch_folders import scratch_folder
from ratify_lakehouse.sql.duckdb_sql import identifier, literal
from tests.embedded.catalog.harness import client_of, delta
from tests.engines.declared_tables import create_table, set_properties

_RANGE = re.compile(r"\bFROM range\(([^()]*)\)")
_LONG = re.compile(r"\b(\d+)L\b")
# A quote in a text, for Spark; sqlglot takes it for the end of one text and the beginning of the next.
_DOUBLED_QUOTE = re.compile(r"\w''\w")
_DROPPED = re.compile(r"DROP TABLE (\S+)")
_ALTERED = re.compile(r"ALTER TABLE (\S+) SET TBLPROPERTIES \((.*)\)")
_RESTORED = re.compile(r"RESTORE TABLE (\S+) TO (?:VERSION AS OF (\d+)|TIMESTAMP AS OF '([^']+)')")
_PAIR = re.compile(r"'([^']*)' = '([^']*)'")


class QuickTables:
    """The tables of a catalog named `ratify`, to which this writes as another program would."""

    def __init__(self, duckdb: DuckDB) -> None:
        self._duckdb = duckdb

    def run(self, statement: str, record: str = "") -> list[dict[str, Any]]:
        """Run CREATE, DROP or RESTORE TABLE, INSERT, UPDATE, DELETE, a change of properties or a query; return its rows.

        `record`: what the commit of an UPDATE or DELETE says of itself.

        Raises:
            NotImplementedError: it is another statement, or has a clause that is not supported here.
        """
        if found := _DROPPED.fullmatch(statement):
            return self._drop(found[1])
        if found := _ALTERED.fullmatch(statement):
            return self._set(found[1], dict(_PAIR.findall(found[2])))
        if found := _RESTORED.fullmatch(statement):
            return self._restore(found[1], found[2], found[3])
        if _DOUBLED_QUOTE.search(statement):
            raise NotImplementedError(statement)
        text = _LONG.sub(r"CAST(\1 AS BIGINT)", _RANGE.sub(r"FROM (SELECT unnest(range(\1)) AS id)", statement))
        try:
            parsed = sqlglot.parse_one(text, dialect="databricks")
        except SqlglotError as error:
            raise NotImplementedError(statement) from error
        with self._duckdb.session() as session, scratch_folder(self._duckdb.home) as folder:
            work = _Statement(self._duckdb, session.con, folder, record)
            match parsed:
                case exp.Create(kind="TABLE"):
                    work.create(parsed)
                case exp.Insert():
                    work.insert(parsed)
                case exp.Update() | exp.Delete():
                    work.change(parsed)
                case exp.Query():
                    return work.rows(parsed)
                case _:
                    raise NotImplementedError(statement)
        return []

    def _drop(self, table: str) -> list[dict[str, Any]]:
        schema, name = table.removeprefix("ratify.").split(".")
        with _client(self._duckdb) as client:
            client.delete(f"{delta(schema)}/tables/{name}").raise_for_status()
        return []

    def _restore(self, table: str, version: str | None, time: str | None) -> list[dict[str, Any]]:
        """Restore a table whose schema and properties are those of then; where its files are, too, nothing is committed."""
        log = self._duckdb.log(f"ratify.{table.removeprefix('ratify.')}")
        snapshot = log.refresh()
        wanted = int(version) if version else version_at(log, snapshot, dt.datetime.fromisoformat(time or ""))
        now, then = table_version(log, snapshot.version), table_version(log, wanted)
        if now.state.metadata != then.state.metadata:
            raise NotImplementedError(f"RESTORE {table}: its schema or its properties were others")
        removes = [file for key, file in now.files.items() if key not in then.files]
        back = [{"add": {**file.add, "dataChange": True}} for key, file in then.files.items() if key not in now.files]
        if removes or back:
            parameters = {"version": version} if version else {"timestamp": time or ""}
            _follow(log, snapshot, Proposal(removes=removes, further=back, operation="RESTORE", parameters=parameters))
        return []

    def _set(self, table: str, properties: Mapping[str, str]) -> list[dict[str, Any]]:
        """Set properties of a table, in a version of their own."""
        if unsupported := [name for name in properties if name.startswith("delta.") and name != CHANGE_DATA_FEED]:
            raise NotImplementedError(unsupported)
        with _client(self._duckdb) as client:
            set_properties(client, table.removeprefix("ratify."), properties)
        return []


class _Statement:
    """One statement, with the tables that it reads as temporary ones."""

    def __init__(self, duckdb: DuckDB, con: Any, folder: Path, record: str) -> None:
        self._duckdb, self._con, self._folder, self._record = duckdb, con, folder, record
        self._read = dict[str, str]()

    def rows(self, query: exp.Expression) -> list[dict[str, Any]]:
        cursor = self._con.execute(self._local(query))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def create(self, statement: exp.Create) -> None:
        """Create a table, with rows in its version 0 if they are given by a query."""
        table = cast("exp.Table", statement.find(exp.Table))
        properties = dict[str, str]()
        comment = ""
        for each in (statement.args.get("properties") or exp.Properties()).expressions:
            if isinstance(each, exp.FileFormatProperty):
                continue
            if isinstance(each, exp.SchemaCommentProperty):
                comment = each.this.name
                continue
            if type(each) is not exp.Property:
                raise NotImplementedError(each.sql())
            properties[each.this.name] = each.args["value"].name
        query = self._local(statement.expression) if statement.expression else ""
        if query:
            given = spark_types(self._con, query)
            fields = [delta_field(name, sql_type(type_ or held)) for name, (held, type_) in given.items()]
        else:
            fields = [_field(column) for column in statement.this.expressions if isinstance(column, exp.ColumnDef)]
        filled = partial(write_parquet, self._con, query) if query else None
        with _client(self._duckdb) as client:
            answer = create_table(client, _name(table), fields, properties, comment, filled=filled)
        # Another process may create it at the same moment.
        assert answer.status_code == 200 or (statement.args.get("exists") and answer.status_code == 409), answer.text

    def insert(self, statement: exp.Insert) -> None:
        """Append rows, or put them in the place of all others."""
        if statement.args.get("where") or statement.args.get("replace_where"):
            raise NotImplementedError(statement.sql())
        log = self._log(cast("exp.Table", statement.find(exp.Table)))
        snapshot = log.refresh()
        types = _types(snapshot)
        into = statement.this
        names = [each.name for each in into.expressions] if isinstance(into, exp.Schema) else list(types)
        rows = statement.expression
        given = f"SELECT * FROM ({self._local(rows)}) AS given({', '.join(map(identifier, names))})"
        selected = ", ".join(
            f"CAST({identifier(name) if name in names else 'NULL'} AS {type_.sql}) AS {identifier(name)}"
            for name, type_ in types.items()
        )
        removes = log.files(snapshot) if statement.args.get("overwrite") else []
        added = self._file(log, f"SELECT {selected} FROM ({given})")
        mode = {"mode": "Overwrite" if statement.args.get("overwrite") else "Append", "partitionBy": "[]"}
        _follow(log, snapshot, Proposal(adds=[added] if added.rows else [], removes=removes, parameters=mode))

    def change(self, statement: exp.Update | exp.Delete) -> None:
        """Write the files of a table again, if rows of it are updated or deleted."""
        log = self._log(cast("exp.Table", statement.this))
        snapshot, deletes = log.refresh(), isinstance(statement, exp.Delete)
        where = statement.args.get("where")
        hit = f"coalesce({self._local(where.this)}, false)" if where else "true"
        values = {} if deletes else {each.this.name: self._local(each.expression) for each in statement.expressions}
        with ExitStack() as stack:
            live = stack.enter_context(live_rows(self._con, log.storage, snapshot, log.files(snapshot)))
            self._con.execute(f"CREATE OR REPLACE TEMP TABLE before AS SELECT *, {hit} AS hit FROM ({live.select()})")
            ((hits, rows),) = self._con.execute("SELECT count(*) FILTER (hit), count(*) FROM before").fetchall()
            if not hits:
                return
            proposal = Proposal(
                adds=[self._file(log, self._after(live, values, deletes=deletes), live.id_columns)]
                if rows > hits or values
                else [],
                removes=list(live.files.values()),
                operation="DELETE" if deletes else "UPDATE",
                metrics={"numDeletedRows" if deletes else "numUpdatedRows": hits, "numCopiedRows": rows - hits},
                change_files=[self._feed(log, live, values)] if records_changes(snapshot.properties) else [],
                record=self._record,
            )
            _follow(log, snapshot, proposal)

    def _after(self, live: LiveRows, values: Mapping[str, str], *, deletes: bool) -> str:
        if deletes:
            return f"SELECT {', '.join(map(identifier, live.types))} FROM before WHERE NOT hit"
        changed = {name: f"CASE WHEN hit THEN {values[name]} ELSE {identifier(name)} END" for name in values}
        # The version that changed a row last is that of its file.
        changed |= {name: f"CASE WHEN NOT hit THEN {identifier(name)} END" for name in live.id_columns[1:]}
        return f"SELECT {_listed(live.types, changed)} FROM before"

    def _feed(self, log: DeltaLog, live: LiveRows, values: Mapping[str, str]) -> DataFile:
        types = {name: type_ for name, type_ in live.types.items() if name not in live.id_columns}
        kind = "update_preimage" if values else "delete"
        parts = [f"SELECT {_listed(types, {})}, '{kind}' AS _change_type FROM before WHERE hit"]
        if values:
            parts.append(f"SELECT {_listed(types, values)}, 'update_postimage' FROM before WHERE hit")
        return self._file(log, " UNION ALL ".join(parts), below="_change_data")

    def _file(self, log: DeltaLog, query: str, without: tuple[str, ...] = (), below: str = "") -> DataFile:
        written = write_parquet(self._con, query, path := self._folder / f"{uuid.uuid4().hex}.parquet")
        return put_data_file(log.storage, path, written, without, below=below)

    def _local(self, query: exp.Expression) -> str:
        """The text for DuckDB, which reads tables of the catalog as they are now."""

        def read(node: exp.Expression) -> exp.Expression:
            if isinstance(node, exp.Concat):
                # DuckDB's leaves out what is NULL.
                texts = [exp.cast(part, "text") for part in node.expressions]
                return reduce(lambda one, other: exp.DPipe(this=one, expression=other), texts)
            if not isinstance(node, exp.Table) or not node.db:
                return node
            if node.args.get("version") or node.args.get("when"):
                raise NotImplementedError(node.sql())
            alias = node.alias or node.name
            return cast("exp.Expression", exp.to_table(self._copied(_name(node))).as_(alias))

        return query.copy().transform(read).sql(dialect="duckdb")

    def _copied(self, name: str) -> str:
        if name not in self._read:
            self._read[name] = f"read_{len(self._read)}"
            log = self._duckdb.log(f"ratify.{name}")
            snapshot = log.refresh()
            if snapshot.properties.get("delta.columnMapping.mode", "none") != "none":
                raise NotImplementedError(f"{name}: the columns of its files have other names")
            partitions = {each: type_ for each, type_ in _types(snapshot).items() if each in snapshot.partition_columns}
            with live_rows(self._con, log.storage, snapshot, log.files(snapshot)) as live:
                parts = [
                    f"SELECT {_listed(_sql(snapshot), _values(file.add, partitions))} FROM ({live.select([path])})"
                    for path, file in (live.files.items() if partitions else ())
                ]
                text = " UNION ALL ".join(parts) if parts else live.select()
                names = ", ".join(map(identifier, _types(snapshot))) if parts or not partitions else "*"
                self._con.execute(f"CREATE TEMP TABLE {self._read[name]} AS SELECT {names} FROM ({text})")
        return self._read[name]

    def _log(self, table: exp.Table) -> DeltaLog:
        return self._duckdb.log(f"ratify.{_name(table)}")


def _client(duckdb: DuckDB) -> httpx.Client:
    """Return a client of the catalog that the engine is attached to."""
    return client_of(duckdb.catalog.connection.host, duckdb.catalog.bearer_token())


def _follow(log: DeltaLog, snapshot: Snapshot, proposal: Proposal) -> None:
    def plan(latest: Snapshot) -> Proposal:
        assert latest.version == snapshot.version, "another writer came between"
        return proposal

    log.commit(plan)


def _name(table: exp.Table) -> str:
    return f"{table.db}.{table.name}"


def _field(column: exp.ColumnDef) -> dict[str, Any]:
    constraints = [each.kind for each in column.constraints]
    required = any(isinstance(each, exp.NotNullColumnConstraint) for each in constraints)
    comment = next((each.this.name for each in constraints if isinstance(each, exp.CommentColumnConstraint)), "")
    kind = cast("exp.DataType", column.kind).sql("databricks")
    metadata = {"comment": comment} if comment else {}
    return delta_field(column.name, sql_type(kind)) | {"nullable": not required, "metadata": metadata}


def _types(snapshot: Snapshot) -> dict[str, SqlType]:
    return {field["name"]: type_of_delta(field["type"]) for field in snapshot.fields}


def _sql(snapshot: Snapshot) -> dict[str, str]:
    return {name: type_.sql for name, type_ in _types(snapshot).items()}


def _values(add: Mapping[str, Any], partitions: Mapping[str, SqlType]) -> dict[str, str]:
    values: Mapping[str, str | None] = add["partitionValues"]
    return {name: "NULL" if values[name] is None else literal(str(values[name])) for name in partitions}


def _listed(types: Mapping[str, str], values: Mapping[str, str]) -> str:
    return ", ".join(
        f"CAST({values.get(name, identifier(name))} AS {type_}) AS {identifier(name)}" for name, type_ in types.items()
    )

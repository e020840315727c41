"""Every pair of attributes of the kinds beside `LandedFiles` and `SqlTable` is accepted or refused as the docs say."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.components.declared_component import DeclaredComponent
from ratify_lakehouse.components.feeds.audit_trail_component import AuditTrail
from ratify_lakehouse.components.feeds.tenant_tables_component import TenantTables
from ratify_lakehouse.components.feeds.topic_feed_component import TopicFeed
from ratify_lakehouse.components.flink_sql_component import FlinkSql
from ratify_lakehouse.components.kafka_events_component import KafkaEvents
from ratify_lakehouse.components.stream_table_component import StreamTable
from ratify_lakehouse.components.sync_component import Sync
from ratify_lakehouse.declarations import APPEND_ONLY, CHANGE_DATA_FEED
from tests.components.attribute_pairs import covering
from tests.components.declared_pairs import Case, declared, misjudged

Values = Mapping[str, list[Any]]


def of_tables(*columns: str) -> dict[str, list[Any]]:
    """Attributes of every table, which has these two columns."""
    one, other = columns
    return {
        "change_data_feed": [False, True],
        "table_properties": [{}, {APPEND_ONLY: "TRUE"}, {APPEND_ONLY: "false"}, {CHANGE_DATA_FEED: "false"}],
        "partition_by": [[], [one]],
        "cluster_by": [[], [other]],
        "maintenance": [{}, {"sort": [one]}],
        "freshness": [None, {}, {"warn_after": "2 hours", "error_after": "1 day"}],
        "tags": [{}, {"ratify/tag": "x"}],
    }


def table_refused(case: Case, *, rewrites: bool) -> bool:
    """Whether attributes of every table do not go together."""
    properties, feed = case.get("table_properties", {}), case.get("change_data_feed")
    return any(
        (
            rewrites and properties.get(APPEND_ONLY) == "TRUE",
            bool(feed) and CHANGE_DATA_FEED in properties,
            bool(case.get("partition_by")) and bool(case.get("cluster_by")),
        )
    )


_EVENTS = {"operation": "op", "sequence_by": "seq"}
SYNC: Values = {
    "strategy": ["merge", "append", "mirror", "full", "scd2", "cdc"],
    "engine": ["spark", "duckdb", "warehouse"],
    "keys": [["id"], [], ["seq"], ["op"]],
    "source": [
        {"table": "gold.a"},
        {"sql": "q.sql"},
        {"file": "a.csv"},
    ],
    "source_engine": ["spark", "duckdb"],
    "format": ["", "csv"],
    "destination": [{"table": "crm.a"}, {"table": "crm.a", "create_if_missing": True}, {"table": "hive_metastore.crm.a"}],
    "on_error": ["fail", "skip"],
    # With the columns that are named: whether a sync has those that it goes by takes both.
    "only_columns": [
        (False, []),
        (False, ["v"]),
        (True, []),
        (True, ["id", "seq", "op", "changed", "v"]),
        (True, ["v"]),
    ],
    "unique": [None, {"latest": ["changed"]}],
    "batch": [None, 10],
    "delete": [None, {"tracked": True}, {"scope": ["changed"]}, {"empty_source": True, "max_fraction": 0.5}],
    "events": [
        None,
        _EVENTS,
        {"operation": "op", "sequence_by": "op"},
        {**_EVENTS, "apply_as_deletes": ["x"], "apply_as_truncates": ["x"]},
    ],
    "history": [
        None,
        {"updated_at": "changed"},
        {"updated_at": "id"},
        {"ignore": ["id"]},
        {"invalidate_hard_deletes": False},
    ],
    "schedule": ["", "0 6 * * *"],
    "external": [False, True],
}
_HAS = {"events": ("cdc",), "delete": ("mirror",), "history": ("scd2",), "unique": ("merge", "mirror")}
_OF_SOURCE = {"engine": "source_engine", "format": "format"}


def sync_goes(case: Case, strategy: str, engine: str) -> bool:
    """Whether the documentation says that these go together, in a sync of a strategy and an engine."""
    given = {name: value for name, value in case.items() if value}
    source, into, keys = case.get("source", {}), case.get("destination", {}), case.get("keys")
    keyed, legacy = strategy not in ("append", "full"), into.get("table", "").startswith("hive_metastore")
    events, history, delete = (given.get(name, {}) for name in ("events", "history", "delete"))
    # With `only_columns`, all that the sync goes by is among them.
    only, columns = case.get("only_columns", (False, []))
    written = columns if only else None
    needed = (
        *(keys or []),
        *given.get("unique", {}).get("latest", []),
        *delete.get("scope", []),
        *filter(None, [events.get("sequence_by"), history.get("updated_at")]),
    )
    return not any(
        (
            given.get("strategy", strategy) != strategy,
            given.get("engine", engine) != engine,
            *(strategy not in strategies and name in given for name, strategies in _HAS.items()),
            strategy == "cdc" and "events" in case and not events,
            keys is not None and bool(keys) != keyed,
            strategy == "cdc" and bool({"seq", "op"} & set(keys or [])),
            events.get("sequence_by") == "op" or "apply_as_truncates" in events,
            strategy == "scd2"
            and "id" in (history.get("updated_at"), *history.get("ignore", []))
            and keys in (None, ["id"]),
            engine == "warehouse"
            and (strategy in ("scd2", "cdc") or delete.get("tracked") or case.get("on_error") == "skip"),
            engine != "warehouse" and (legacy or "batch" in given),
            engine == "duckdb" and "sql" in source and case.get("source_engine") == "spark",
            case.get("source_engine") == "duckdb" and bool(source) and "sql" not in source,
            "format" in given and bool(source) and "file" not in source,
            "format" in given and case.get("source_engine") == "duckdb",
            written is not None and not set(needed).issubset(written),
            written == [],
        )
    )


def sync_attributes(case: Case) -> dict[str, Any]:
    source = {**case["source"], **{name: case[of] for name, of in _OF_SOURCE.items() if case[of]}}
    only, columns = case["only_columns"]
    given = {name: value for name, value in case.items() if name not in _OF_SOURCE.values()}
    return {**given, "source": source, "only_columns": only, "columns": [{"name": name} for name in columns]}


def sync_refused(case: Case) -> bool:
    """Whether these go together in no sync: each strategy has to have what it goes by."""
    either = ([case[name]] if name in case else SYNC[name] for name in ("strategy", "engine"))
    for strategy, engine in itertools.product(*either):
        keys = [[]] if strategy in ("append", "full") else [["id"], ["seq"]]
        needed = {"events": _EVENTS if strategy == "cdc" else None}
        if any(sync_goes({"keys": each, **needed, **case}, strategy, engine) for each in keys):
            return False
    return True


_STREAM: Values = {
    **of_tables("kind", "k"),
    "keys": [["k"], ["k", "kind"]],
    "action": ["", "warn", "drop", "quarantine", "fail"],
    "named": ["small", "on_time", "one_row_for_each_key"],
    "lateness": [None, {"time": "at", "allowed": "1 hour"}, {"time": "k", "allowed": "1 hour"}],
    "nullable": [True, False],
}


def stream_refused(case: Case) -> bool:
    late, named = case.get("lateness"), case.get("named") if case.get("action", "warn") else None
    return any(
        (
            table_refused(case, rewrites=True),
            late == _STREAM["lateness"][2],
            named == "one_row_for_each_key" and "action" in case,
            named == "on_time" and bool(late) and "action" in case,
        )
    )


_KAFKA: Values = {
    "isolation": ["read_committed", "read_uncommitted"],
    **of_tables("topic", "offset"),
    "source": ["kafka", "files", "rate"],
    "topics": [["a"], ["a", "b"]],
    "starting": ["earliest", "latest"],
    "starting_offsets": [{}, {"b": {"0": 1}}],
    "max_records": [500_000, 10],
    "min_records": [1, 100],
    "on_data_loss": ["fail", "continue"],
    "format": ["json", "kcat"],
    "key": ["", "k"],
    "subjects": [{}, {"user": ["key", "value.user.id"]}],
    "landed": ["keep", "delete", "rewrite"],
}


def kafka_refused(case: Case) -> bool:
    return any(
        (
            table_refused(case, rewrites=False),
            bool(case.get("starting_offsets")) and case.get("topics") == ["a"],
            case.get("min_records") == 100 and case.get("max_records") == 10,
        )
    )


_FLINK: Values = {
    "isolation": ["read_committed", "read_uncommitted"],
    **of_tables("kind", "k"),
    "topics": [
        [{"topic": "a", "name": "a"}],
        [{"topic": "a", "name": "a"}, {"topic": "b", "name": "a"}],
        [{"topic": "a", "name": "a", "time": {"expression": "`timestamp`", "allowed": "1 hour"}}],
    ],
    "keys": [["k"], ["nope"]],
    "state": ["", "3 hours"],
    "equal_to": [None, {"table": "silver.t", "time": "at"}, {"table": "silver.t", "time": "nope"}],
    "parallelism": [1, 2],
}


def flink_refused(case: Case) -> bool:
    doubled, unknown = case.get("topics") == _FLINK["topics"][1], case.get("equal_to") == _FLINK["equal_to"][2]
    return table_refused(case, rewrites=False) or doubled or unknown or case.get("keys") == ["nope"]


_TENANTS: Values = {
    **of_tables("kind", "k"),
    "table": ["silver.a"],
    "keys": [["k"], ["k", "kind"]],
    "tenants": [
        [{"name": "north", "where": "region = 'n'"}, {"name": "south", "where": "region = 's'"}],
        [{"name": "north", "where": "region = 'n'"}, {"name": "North", "where": "region = 's'"}],
    ],
    "exclusive": [False, True],
    "complete": [False, True],
    "external": [False, True],
}


def tenants_refused(case: Case) -> bool:
    doubled = case.get("tenants") == _TENANTS["tenants"][1]
    return table_refused(case, rewrites=True) or doubled or case.get("freshness") is not None


_TRAIL: Values = {
    **of_tables("change", "version"),
    "table": ["silver.a"],
    "keys": [["k"], ["k", "kind"]],
    "external": [False, True],
    "from_version": [0, 3],
}


def trail_refused(case: Case) -> bool:
    return table_refused(case, rewrites=False) or case.get("table_properties") == {APPEND_ONLY: "false"}


_TOPIC: Values = {
    "table": ["silver.a", "a"],
    "keys": [["k"], ["k", "kind"]],
    "topic": ["orders.changes", "a b"],
    "partitions": [1, 4],
    "external": [False, True],
    "from_version": [0, 3],
}


def topic_refused(case: Case) -> bool:
    return case.get("table") == "a" or case.get("topic") == "a b"


_COLUMNS = [{"name": "k", "type": "string"}, {"name": "kind", "type": "string"}, {"name": "at", "type": "timestamp"}]


def stream_attributes(case: Case) -> dict[str, Any]:
    given = {name: value for name, value in case.items() if name not in ("action", "named", "nullable")}
    rule = {"name": case["named"], "expect": "k <> ''", "action": case["action"]}
    columns = [{**_COLUMNS[0], "nullable": case["nullable"]}, *_COLUMNS[1:]]
    return {**given, "columns": columns, "expectations": [rule] if case["action"] else []}


@dataclass(frozen=True)
class PairedKind:
    """A kind, the values of its attributes, what the docs refuse, and how a case is written."""

    kind: type[DeclaredComponent]
    values: Values
    refused: Callable[[Case], bool]
    attributes: Callable[[Case], Mapping[str, Any]] = dict
    sql: str = ""


_RECORD = "topic, partition, offset, `timestamp` AS kafka_timestamp, key, value, headers"
KINDS = [
    PairedKind(Sync, SYNC, sync_refused, sync_attributes),
    PairedKind(
        StreamTable,
        _STREAM,
        stream_refused,
        stream_attributes,
        f"SELECT {_RECORD}, CAST(key AS STRING) AS k, CAST(key AS STRING) AS kind, `timestamp` AS at FROM bronze.a",
    ),
    PairedKind(KafkaEvents, _KAFKA, kafka_refused),
    PairedKind(FlinkSql, _FLINK, flink_refused, lambda case: {**case, "columns": _COLUMNS}, "SELECT k, kind, at FROM a"),
    PairedKind(TenantTables, _TENANTS, tenants_refused),
    PairedKind(AuditTrail, _TRAIL, trail_refused),
    PairedKind(TopicFeed, _TOPIC, topic_refused),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind.__name__)
def test_a_declaration_is_refused_as_the_docs_say(kind: PairedKind, tmp_path: Path) -> None:
    folder = tmp_path / ("syncs" if kind.kind is Sync else "silver")

    def load(number: int, case: Case) -> DeclaredComponent:
        given = {name: value for name, value in kind.attributes(case).items() if value is not None}
        at = folder / f"t{number}"
        at.mkdir(parents=True)
        (at / "q.sql").write_text("SELECT id, v FROM gold.a")
        return declared(kind.kind, at, given, kind.sql)

    cases = covering(kind.values, kind.refused)
    wrong = misjudged(cases, kind.refused, load)
    assert not wrong, "\n".join(f"{case}: {what}" for case, what in wrong.items())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind.__name__)
def test_every_attribute_is_among_them(kind: PairedKind) -> None:
    """Those that only describe the table, or go with nothing else, are not."""
    free = {"description", "owner", "sql", "columns", "expectations", "consumer_group", "min_file_bytes", "max_files"}
    free |= {"rate", "files", "time", "allowed_latency", "checkpoint_seconds", "tags"}
    missing = set(kind.kind.model_fields) - set(kind.values) - free
    assert not missing

"""A table that is made by the catalog's API is as one that Spark creates, and rows in it as rows that Spark inserts."""

import json
import re
from typing import Any

import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.managed_creation import create_table, creates
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import CatalogUnavailable
from ratify_lakehouse.table_layout import Layout
from tests.engines.lakehouse import Lakehouse, append, pairs

pytestmark = pytest.mark.stack
_COLUMNS = (Column("id", "bigint", "The key.", nullable=False), Column("v", "string"), Column("at", "timestamp"))
_DECLARED: tuple[dict[str, Any], ...] = (
    {},
    {
        "keys": ("id",),
        "properties": {
            "delta.enableChangeDataFeed": "true",
            "delta.appendOnly": "true",
            "delta.enableRowTracking": "false",
        },
        "layout": Layout(partition_by=("v",)),
    },
    {"layout": Layout(cluster_by=("v", "id"))},
)
_ROWS = "(1, 'a', TIMESTAMP '2025-03-30 01:30:00.000001'), (2, NULL, NULL)"
# Ids, and the columns of row tracking, whose names are random.
_RANDOM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CHANGING = ("delta.lastCommitTimestamp", "delta.clusteringColumns")


def _described(lake: Lakehouse, name: str, *, engine: bool = True) -> Any:
    """What the catalog answers of a table, and its log's first version, but for ids, times and order; `engine`: whose."""
    loaded = lake.catalog.load_table(f"ratify.bronze.{name}")
    metadata = loaded["metadata"]
    properties = {key: value for key, value in metadata["properties"].items() if key not in _CHANGING}
    log = [json.loads(line) for line in (lake.folder(f"ratify.bronze.{name}") / f"_delta_log/{0:020d}.json").open()]
    (stored,) = (line["metaData"] for line in log if "metaData" in line)
    (protocol,) = (line["protocol"] for line in log if "protocol" in line)
    domains = [line["domainMetadata"]["domain"] for line in log if "domainMetadata" in line]
    (info,) = (line["commitInfo"] for line in log if "commitInfo" in line)
    text = json.dumps(
        [
            {key: metadata.get(key) for key in ("table-type", "columns", "partition-columns", "last-commit-version")},
            sorted(properties.items()),
            json.loads(metadata["properties"].get("delta.clusteringColumns", "[]")),
            lake.catalog.table(f"ratify.bronze.{name}").comment,
            [stored["description"], json.loads(stored["schemaString"]), stored["partitionColumns"]],
            sorted(stored["configuration"].items()),
            [sorted(value) if isinstance(value, list) else value for value in protocol.values()],
            domains,
            [info["operation"], info["engineInfo"] if engine else ""],
            loaded["latest-table-version"],
        ],
        indent=1,
    )
    return _RANDOM.sub("<id>", text).splitlines()


def _inserted(lake: Lakehouse, name: str, version: int) -> Any:
    """What a commit that appends rows has, but for paths, times, sizes and how many files it took."""
    log = lake.folder(f"ratify.bronze.{name}") / f"_delta_log/{version:020d}.json"
    actions = [json.loads(line) for line in log.open()]
    info = {**actions[0]["commitInfo"], "operationMetrics": sorted(actions[0]["commitInfo"]["operationMetrics"])}
    info["operationParameters"].pop("partitionBy")
    adds = [action["add"] for action in actions if "add" in action]
    marks = [json.loads(action["domainMetadata"]["configuration"]) for action in actions if "domainMetadata" in action]
    return (
        sorted(info),
        {key: info[key] for key in ("operation", "operationParameters", "readVersion", "isBlindAppend", "engineInfo")},
        {frozenset(add) for add in adds},
        sum(json.loads(add["stats"])["numRecords"] for add in adds),
        {frozenset(json.loads(add["stats"])) for add in adds if json.loads(add["stats"]).get("minValues")},
        {tuple(add["partitionValues"].items()) for add in adds},
        [mark["rowIdHighWaterMark"] for mark in marks],
    )


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.long)])
def test_they_are_as_those_of_spark(lake: Lakehouse, count: int) -> None:
    """`count`: of the declarations; those that DuckDB writes are compared when they are clustered, too."""
    all_made = list[TableDeclaration]()
    for declared in _DECLARED[:count]:
        by_spark, made = (pairs(**{"writer": Engine.SPARK, "columns": _COLUMNS, **declared}) for _ in range(2))
        lake.spark.ensure_table(by_spark)
        lake.create(made, f"VALUES {_ROWS}")
        lake.run(f"INSERT INTO {lake.full(by_spark)} VALUES {_ROWS}")
        assert _described(lake, made.name) == _described(lake, by_spark.name)
        assert _inserted(lake, made.name, 1) == _inserted(lake, by_spark.name, 1)
        all_made += [by_spark, made]
    # Each engine reads them, and goes on from there.
    for made in all_made[1::2]:
        assert lake.insert(made, "SELECT range, 'b', NULL FROM range(3, 5)") == 2
    lake.run(f"INSERT INTO {lake.full(all_made[3])} VALUES (5, 'c', NULL)")
    for number, table in enumerate(all_made):
        expected = [(1, "a"), (2, None), *[(3, "b"), (4, "b")][: 2 * (number % 2)], *[(5, "c")][: number == 3]]
        assert sorted(lake.read(f"SELECT id, v FROM uc.bronze.{table.name}")) == expected
    # Of those that Spark made it reads one: they have one moment.
    each = (f"SELECT {number} AS number, count(*) AS rows, max(unix_micros(at)) AS at FROM {lake.full(table)}"
            for number, table in enumerate([all_made[0], *all_made[1::2]]))  # fmt: skip
    found = lake.run(f"{' UNION ALL '.join(each)} ORDER BY number")
    assert [row["rows"] for row in found] == [2, 4, 5, 4][: count + 1]
    assert len({row["at"] for row in found}) == 1


@pytest.mark.parametrize("declared", [each for each in _DECLARED if "properties" not in each] + [{"keys": ("id",)}])
def test_those_that_duckdb_writes_are_created_as_by_spark(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, declared: dict[str, Any]
) -> None:
    """Without Spark, in a schema that is there or not; all engines go on from there."""
    by_spark, made = (pairs(**{"writer": w, "columns": _COLUMNS, **declared}) for w in (Engine.SPARK, Engine.DUCKDB))
    assert lake.spark.ensure_table(by_spark)
    with monkeypatch.context() as patch:
        patch.setattr(Spark, "sql", lambda *_: pytest.fail("Spark was asked"))
        patch.setattr(Spark, "_run", lambda *_: pytest.fail("Spark was asked"))
        assert lake.spark.ensure_table(made)
        assert not lake.spark.ensure_table(made)
    assert _described(lake, made.name, engine=False) == _described(lake, by_spark.name, engine=False)
    append(lake.duckdb, made, "SELECT 1, 'a', NULL", "load-1")
    lake.run(f"INSERT INTO {lake.full(made)} VALUES (2, 'b', NULL)")
    assert [(row[0], row[1]) for row in lake.stored(made)] == [(1, "a"), (2, "b")]


def test_of_two_that_create_a_table_at_once_one_does(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the answer to the one that did is lost."""
    made, request = pairs(columns=_COLUMNS), UnityCatalog.request

    def lost(catalog: UnityCatalog, method: str, what: str, path: str, body: Any = None) -> Any:
        answer = request(catalog, method, what, path, body)
        if method == "POST" and path.endswith("/tables"):
            raise CatalogUnavailable("The answer was lost.")
        return answer

    lake.catalog.ensure_schemas(("bronze",))
    with monkeypatch.context() as patch:
        patch.setattr(UnityCatalog, "request", lost)
        assert create_table(lake.catalog, made)
    assert not create_table(lake.catalog, made)
    append(lake.duckdb, made, "SELECT 1, 'a', NULL", "load-1")
    assert len(lake.stored(made)) == 1


def test_a_table_that_needs_a_feature_is_left_to_spark(lake: Lakehouse) -> None:
    assert creates(lake.catalog, pairs(columns=_COLUMNS))
    assert not creates(lake.catalog, pairs(columns=_COLUMNS, properties={"delta.enableTypeWidening": "true"}))


def test_their_properties_are_set_as_by_spark(lake: Lakehouse) -> None:
    by_spark, made = lake.create(pairs()), lake.create(pairs())
    name = lake.full(by_spark)
    lake.run(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'delta.appendOnly' = 'true')")
    assert lake.alter(made, {"delta.enableChangeDataFeed": "true", "delta.appendOnly": "true"}) == 1
    assert _described(lake, made.name) == _described(lake, by_spark.name)
    found = [[next(iter(action)) for action in lake.commit(table, 1)] for table in (made, by_spark)]
    assert sorted(found[0]) == sorted(found[1])
    infos = [lake.commit(table, 1)[0]["commitInfo"] for table in (made, by_spark)]
    assert [set(info) for info in infos] == 2 * [set(infos[1])]
    assert [info["operation"] for info in infos] == 2 * ["SET TBLPROPERTIES"]
    lake.run(f"INSERT INTO {lake.full(made)} VALUES (1, 'a')")
    assert lake.run(f"SELECT id, _change_type AS c FROM table_changes('{lake.full(made)}', 1)") == [{"id": 1, "c": "insert"}]


def test_duckdb_goes_on_where_they_end(lake: Lakehouse) -> None:
    made = lake.create(pairs(), "VALUES (1, 'a')")
    append(lake.duckdb, made, "SELECT 2, 'b'", "load-1")
    assert lake.insert(made, "VALUES (3, 'c')", userMetadata="x") == 3
    ids = [action["add"]["baseRowId"] for version in (1, 2, 3) for action in lake.commit(made, version) if "add" in action]
    assert ids == [0, 1, 2]
    assert lake.commit(made, 3)[0]["commitInfo"]["userMetadata"] == "x"
    assert lake.stored(made) == [(1, "a"), (2, "b"), (3, "c")]

"""Mistakes in declarations of tables that follow a change data feed, named with their file, line and field."""

import importlib

import dagster as dg
import pytest

from ratify_lakehouse.components.yaml_tables import DeclaredTables
from resources.project_resources import RESOURCES
from tests.components.test_declaration_mistakes import BRONZE, Mistakes, load, mistakes

__all__ = ["mistakes"]

TRAIL = "type: ratify_lakehouse.AuditTrail\nattributes:\n  description: D\n  table: bronze.orders\n  keys: [id]\n"

TENANTS = TRAIL.replace("AuditTrail", "TenantTables") + "  tenants:\n    - {name: north, where: region = 'north'}\n"
TOPIC = TRAIL.replace("AuditTrail", "TopicFeed") + "  topic: orders.changes\n"


@pytest.mark.parametrize(
    ("declaration", "place", "reason"),
    [
        (TRAIL, "line 4, table", "bronze.orders records no changes: set `change_data_feed: true` in its defs.yaml"),
        (TRAIL.replace("orders", "order"), "line 4, table", "Did you mean bronze.orders? Set `external: true`"),
        (TRAIL.replace("bronze.", ""), "line 4, table", "'orders' is not a table name: write schema.table"),
        (TRAIL.replace("[id]", "[]"), "defs.yaml:5", "keys"),
        (TRAIL + "  from_version: -1\n", "defs.yaml:6", "from_version"),
        (TENANTS + "    - {name: North, where: x = 1}\n", "line 8, tenants[1].name", "North is there twice"),
        (TENANTS + "    - {name: b-c, where: x = 1}\n", "line 8, tenants[1].name", "is not a plain identifier"),
        (TENANTS + "    - {name: b, where: x = = 1}\n", "line 8, tenants[1].where", "'x = = 1' is not a predicate"),
        (
            TENANTS + "    - {name: b, where: x IN (SELECT y FROM a.b)}\n",
            "tenants[1].where",
            "reads more than bronze.orders",
        ),
        (TENANTS + "    - {name: b, where: x < current_date()}\n", "tenants[1].where", "another value in each run"),
        (TENANTS + "  freshness: {}\n", "line 8, freshness", "a tenant need not have new rows"),
        (TENANTS.replace("orders", "order"), "line 4, table", "Did you mean bronze.orders? Set `external: true`"),
        (TOPIC.replace("orders.c", "orders/c"), "line 6, topic", "'orders/changes' is not a topic name"),
        (TOPIC + "  partitions: 0\n", "defs.yaml:7", "partitions"),
        (TOPIC + "  freshness: {}\n", "defs.yaml:7", "freshness"),
    ],
)
def test_in_a_table_that_follows_a_feed(mistakes: Mistakes, declaration: str, place: str, reason: str) -> None:
    feed = "" if declaration == TRAIL else "  change_data_feed: true\n"
    mistakes.write("bronze/orders", BRONZE + feed)
    mistakes.write("gold/followed", declaration)
    error = mistakes.error()
    assert f"gold/followed/defs.yaml, {place}" in error or place in error
    assert reason in error


@pytest.mark.parametrize("other", ["orders.changes", "orders.changes.offsets"])
def test_two_that_publish_to_one_topic(mistakes: Mistakes, other: str) -> None:
    mistakes.write("bronze/orders", BRONZE + "  change_data_feed: true\n")
    mistakes.write("feeds/first", TOPIC)
    mistakes.write("feeds/second", TOPIC.replace("topic: orders.changes", f"topic: {other}"))
    assert f"feeds/second/defs.yaml, line 6, topic: first publishes to {other}: choose another topic" in mistakes.error()


def test_a_topic_that_tables_read_is_one_asset(mistakes: Mistakes) -> None:
    mistakes.write("bronze/orders", BRONZE + "  change_data_feed: true\n")
    mistakes.write("feeds/changes", TOPIC)
    read = "type: ratify_lakehouse.KafkaEvents\nattributes:\n  description: D\n  topics: [orders.changes]\n"
    mistakes.write("bronze/changes", read)
    tables = DeclaredTables(importlib.import_module(mistakes.root.name))
    load(tables)
    defs = dg.Definitions.merge(tables.definitions, dg.Definitions(resources=RESOURCES))
    (topic,) = [spec for spec in defs.resolve_all_asset_specs() if spec.key.path[0] == "kafka"]
    assert [dep.asset_key.path for dep in topic.deps] == [["ratify", "bronze", "orders"]]


def test_every_tenant_is_a_reader_whose_versions_stay(mistakes: Mistakes) -> None:
    mistakes.write("bronze/orders", BRONZE + "  change_data_feed: true\n")
    mistakes.write("gold/orders", TENANTS + "    - {name: south, where: region = 'south'}\n")
    tables = DeclaredTables(importlib.import_module(mistakes.root.name))
    (read,) = [table for table in tables.maintained.values() if table.declaration.table_name == "bronze.orders"]
    assert [reader.name for reader in read.readers] == ["orders_north", "orders_south"]

"""The tables that ship: what each depends on, which checks it has, and that these are asked for with it."""

import dagster as dg

from orchestration.definitions import defs
from ratify_lakehouse.components.query_component import QueryComponent
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.definitions.project_tables import declared_tables

GRAPH = {
    "landing/bronze/airlines": [],
    "landing/bronze/airports": [],
    "landing/bronze/flights_raw": [],
    "landing/bronze/planes": [],
    "landing/bronze/weather": [],
    "ratify/bronze/airlines": ["landing/bronze/airlines"],
    "ratify/bronze/airports": ["landing/bronze/airports"],
    "ratify/bronze/flights_raw": ["landing/bronze/flights_raw"],
    "kafka/tracker-events": [],
    "ratify/bronze/tracker_events_raw": ["kafka/tracker-events"],
    "ratify/bronze/planes": ["landing/bronze/planes"],
    "ratify/bronze/weather": ["landing/bronze/weather"],
    "ratify/ops/landed_files": [
        "ratify/bronze/airlines",
        "ratify/bronze/airports",
        "ratify/bronze/flights_raw",
        "ratify/bronze/planes",
        "ratify/bronze/weather",
    ],
    "ratify/silver/airports": ["ratify/bronze/airports"],
    "ratify/silver/airports_quarantine": ["ratify/bronze/airports"],
    "ratify/silver/flights": ["ratify/bronze/flights_raw", "ratify/silver/airports"],
    "ratify/silver/flights_quarantine": ["ratify/bronze/flights_raw", "ratify/silver/airports"],
    "ratify/silver/flights_weather": ["ratify/bronze/weather", "ratify/silver/flights"],
    "ratify/silver/tracker_events": ["ratify/bronze/tracker_events_raw"],
    "ratify/silver/tracker_events_quarantine": ["ratify/bronze/tracker_events_raw"],
    "ratify/ops/stream_batches": ["ratify/silver/tracker_events"],
    "ratify/gold/heart_rate_minute": ["ratify/silver/tracker_events"],
    "ratify/gold/heart_rate_minute_flink": ["kafka/tracker-events"],
    "ratify/gold/device_daily": ["ratify/silver/tracker_events"],
    "ratify/gold/airport_daily": ["ratify/silver/flights"],
    "ratify/gold/airport_hourly": ["ratify/silver/flights", "ratify/silver/flights_weather"],
    "ratify/gold/carrier_daily": ["ratify/bronze/airlines", "ratify/silver/flights"],
    "ratify/gold/carrier_daily_snapshot": ["ratify/silver/flights"],
    "ratify/gold/route_delay": ["ratify/silver/airports", "ratify/silver/flights"],
    "syncs/airports": ["ratify/bronze/airports"],
    "syncs/carrier_daily": ["ratify/gold/carrier_daily"],
    "syncs/planes": ["ratify/bronze/planes"],
}


OF_FLIGHTS = ("table_is_intact", "written_as_reported", "maintained_as_declared", "rows_reconciled", "data_is_fresh")


def inputs(spec: dg.AssetSpec) -> list[str]:
    return sorted(dep.asset_key.to_user_string() for dep in spec.deps)


def test_asset_graph() -> None:
    assert {spec.key.to_user_string(): inputs(spec) for spec in defs.resolve_all_asset_specs()} == GRAPH


def test_every_table_has_the_checks_of_its_kind_at_most_five() -> None:
    checks = [key for definition in defs.asset_checks or [] for key in definition.check_keys]
    by_asset = {key.asset_key.to_user_string(): set[str]() for key in checks}
    for key in checks:
        by_asset[key.asset_key.to_user_string()].add(key.name)
    for name in [name for name in by_asset if name.startswith("syncs/")]:
        # Only one that skips rows may have dead letters.
        assert by_asset.pop(name) == {"rows_as_committed", *(["no_dead_letters"] if name == "syncs/airports" else [])}
    tables = {name for name in GRAPH if name.split("/")[1] in {"bronze", "silver", "gold"} and name.startswith("ratify/")}
    assert set(by_asset) == {*tables, "ratify/ops/landed_files", "ratify/ops/stream_batches"}
    for name, found in by_asset.items():
        assert {"table_is_intact", "maintained_as_declared"} <= found, name
        assert len(found) <= 5, name
        landed = any(dep.startswith("landing/") for dep in GRAPH[name])
        assert ({"files_loaded_once", "files_accepted"} <= found) == landed, name
        # What landed files brought is compared with the files, and with their ledger.
        assert ("written_as_reported" in found) == (name in tables and not landed), name
        assert ("offsets_once" in found) == (name == "ratify/bronze/tracker_events_raw")
        by_flink = {"one_row_for_each_key", "equals_gold_heart_rate_minute"}
        assert (by_flink <= found) == (name == "ratify/gold/heart_rate_minute_flink")
    assert len(checks) == len(set(checks))


def test_every_check_of_a_table_is_asked_for_with_it() -> None:
    """Also where the table brings some of its own: Dagster runs no others then, and what they block would wait for ever."""
    flights = dg.AssetKey(["ratify", "silver", "flights"])
    checks = defs.resolve_asset_graph().get_check_keys_for_assets
    with dg.DagsterInstance.ephemeral() as instance:
        before = dg.evaluate_automation_conditions(defs=defs, instance=instance)
        for source in declared_tables().sources:
            key = asset_key(source.table)
            instance.report_runless_asset_event(dg.AssetMaterialization(key))
            for check in checks({key}):
                passed = dg.AssetCheckEvaluation(asset_key=key, check_name=check.name, passed=True, metadata={})
                instance.report_runless_asset_event(passed)
        asked = dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=before.cursor)
    wanted = {result.key for result in asked.results if not result.true_subset.is_empty}
    own = {spec.name for spec in defs.get_assets_def(flights).check_specs}
    others = {check for check in checks({flights}) if check.name not in own}
    assert flights in wanted
    assert own
    assert others == {dg.AssetCheckKey(flights, name) for name in OF_FLIGHTS}
    assert others <= wanted


def test_only_whose_an_event_is_is_left_out_of_the_pages() -> None:
    tables = declared_tables()
    known = {
        name: component.query.columns if isinstance(component, QueryComponent) else component.written[0].column_names
        for name, component in tables.components.items()
    }
    hidden = {
        name: [column for column in columns if is_personal(column)]
        for name, columns in known.items()
        for is_personal in [tables.personal.of_table(name, lambda table: known[str(table)])]
    }
    stream = tables.streams[0]
    assert {name: columns for name, columns in hidden.items() if columns} == {
        stream.records.table_name: ["key"],
        stream.table.table_name: ["key", "user_id"],
    }
    assert stream.table.personal == ("user_id",)
    assert all(not table.declaration.personal for table in tables.flink_tables)

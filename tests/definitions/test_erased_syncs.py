"""`ratify erase` and syncs: their destinations, what they remember of keys, and their dead letters."""

import os
import shutil
import time

import pytest

from ratify_lakehouse.components.syncs.dead_letters import DEAD_LETTERS
from ratify_lakehouse.components.syncs.sync_declaration import SyncStrategy
from ratify_lakehouse.components.syncs.sync_engines import letters_of, pass_of
from ratify_lakehouse.definitions.subject_places import places_of_subjects, subject_tables
from ratify_lakehouse.delta.table_clean import RETENTION
from ratify_lakehouse.sql.subject_match import Match
from ratify_lakehouse.wording import counted
from tests.cli.test_cli_restore import given
from tests.cli.test_erase import erased, holders, people
from tests.components.test_yaml_tables import Project, Shop, project, shop
from tests.engines.lakehouse import engines, lake

__all__ = ["engines", "given", "lake", "people", "project", "shop"]

SYNCED = "Mia Synced"
ORDERS_OF = """
  source: {{table: silver_{id}.orders}}
  destination: {{table: crm_{id}.{name}, create_if_missing: true}}
  columns:
    - {{name: who, source: customer}}
"""
BY_PERSON = """
  source: {{sql: rows.sql}}
  destination: {{table: crm_{id}.{name}, create_if_missing: true}}
  keys: [who]
"""
TINY = "  only_columns: true\n  on_error: skip\n"
MODES = {
    "inserted": f"strategy: append{ORDERS_OF}",
    "inserted_by_duckdb": f"strategy: append\n  engine: duckdb{ORDERS_OF}",
    "merged": f"strategy: merge\n  keys: [order_id]{ORDERS_OF}",
    "merged_by_duckdb": f"strategy: merge\n  keys: [order_id]\n  engine: duckdb{ORDERS_OF}",
    "mirrored": f"strategy: mirror\n  delete: {{{{tracked: true}}}}{BY_PERSON}",
    "replaced": f"strategy: full{ORDERS_OF}",
    "versioned": f"strategy: scd2\n  keys: [order_id]{ORDERS_OF}",
    "applied": f"strategy: cdc\n  events: {{{{operation: op, sequence_by: seq}}}}{BY_PERSON}",
    "skipping": f"strategy: merge\n  keys: [id]{ORDERS_OF}    - {{{{name: id, source: order_id}}}}\n{TINY}",
    "collecting": f"strategy: append{ORDERS_OF}    - {{{{name: id, source: order_id}}}}\n{TINY}",
}
"""Syncs by their names: all strategies, two of them also by DuckDB, and two with dead letters."""

QUERIES = {
    "mirrored": "SELECT customer AS who, count(*) AS n FROM silver_{id}.orders GROUP BY customer",
    "applied": "SELECT customer AS who, order_id AS seq, CASE WHEN order_id > 3 THEN 'd' ELSE 'u' END AS op "
    "FROM silver_{id}.orders",
}


def with_syncs(project: Project) -> Project:
    for name, text in MODES.items():
        folder = project.root / "syncs" / f"{name}_{project.id}"
        folder.mkdir(parents=True)
        attributes = text.format(id=project.id, name=name)
        (folder / "defs.yaml").write_text(
            f"type: ratify_lakehouse.Sync\nattributes:\n  description: Orders for others\n  {attributes}"
        )
        if name in QUERIES:
            (folder / "rows.sql").write_text(QUERIES[name].format(id=project.id))
    return project


def test_where_syncs_have_a_subject(project: Project) -> None:
    column = "columns: [{name: customer, pii: true, subject: customer}]"
    project.write(
        "silver",
        "orders",
        f"type: ratify_lakehouse.SqlTable\nattributes:\n  description: d\n  keys: [order_id]\n  {column}\n",
        "SELECT 1 AS order_id, 'a' AS customer",
    )
    ids = project.id
    known = {
        f"silver_{ids}.orders": ["order_id", "customer"],
        f"ops.sync_mirrored_{ids}_keys": ["who", "pass_id", "after", "deleted"],
        f"ops.sync_applied_{ids}_deleted": ["who", "seq", "truncated"],
    }
    tables = subject_tables(with_syncs(project).tables, lambda name: known.get(name, ()))
    found = places_of_subjects(tables, "customer")
    letters = found.matches[DEAD_LETTERS.table_name]
    assert {(each.column, each.name, each.sync) for each in letters} == {
        ("row", "who" if name in QUERIES else "customer", f"{name}_{ids}") for name in MODES
    }
    assert {name: ways for name, ways in found.matches.items() if name != DEAD_LETTERS.table_name} == {
        f"silver_{ids}.orders": [Match("customer")],
        **{f"crm_{ids}.{name}": [Match("who")] for name in MODES},
        f"ops.sync_mirrored_{ids}_keys": [Match("who")],
        f"ops.sync_applied_{ids}_deleted": [Match("who")],
    }
    assert found.unfound == {}


def held(shop: Shop, name: str) -> list[str]:
    """The rows of a table, as text; of the dead letters, those of the test's syncs."""
    of_test = f" WHERE sync LIKE '%{shop.project.id}'" if name.endswith(DEAD_LETTERS.table_name) else ""
    return sorted(str(row) for row in shop.lake.run(f"SELECT * FROM {name}{of_test}"))


def expired(shop: Shop, names: list[str]) -> float:
    """Let two hours pass for these tables, which keep deleted files for one; return the time then."""
    now = time.time() + 2 * 3600
    for name in names:
        shop.lake.run(f"ALTER TABLE {name} SET TBLPROPERTIES ('{RETENTION}' = 'interval 1 hour')")
        newest = shop.lake.folder(name) / "newest"
        newest.touch()
        os.utime(newest, (now, now))
    return now


@pytest.mark.long
@pytest.mark.stack
def test_no_file_of_a_sync_has_the_value_afterwards(people: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    id_ = people.project.id
    shutil.rmtree(people.project.root / people.project.schema("gold"))
    with_syncs(people.project)
    people.lake.catalog.ensure_schemas((f"crm_{id_}", "ops"))
    for name in ("skipping", "collecting"):
        people.lake.run(f"CREATE TABLE ratify.crm_{id_}.{name} (id TINYINT, who STRING) USING DELTA")
    # The person is neither the least nor the greatest value of a file, which the log would have, too.
    names = ("Ann", SYNCED, "Zoe")
    people.land("1.csv", "".join(f"{n},{names[(n - 1) % 3]},1,2026-01-01\n" for n in (1, 2, 3, 4, 5, 6, 301, 302, 303)))
    done = people.run(checks=False)
    assert done.success, [event for event in done.all_events if event.is_step_failure]
    tables = [f"ratify.crm_{id_}.{name}" for name in MODES] + [
        f"ratify.ops.sync_mirrored_{id_}_keys",
        f"ratify.ops.sync_applied_{id_}_deleted",
        f"ratify.{DEAD_LETTERS.table_name}",
    ]
    syncs = {name: people.project.tables.syncs[f"{name}_{id_}"].sync for name in MODES}
    waiting = {name: letters_of(people.lake.spark, people.lake.duckdb, sync) for name, sync in syncs.items()}
    assert waiting == dict.fromkeys(MODES, 0) | {"skipping": 3, "collecting": 3}
    before = {name: held(people, name) for name in tables}
    assert all(any(SYNCED in row for row in rows) for name, rows in before.items() if not name.endswith(".applied"))

    report = erased("--apply", "--reason", "request 19", person=SYNCED)
    after = {name: [row for row in rows if SYNCED not in row] for name, rows in before.items()}
    assert {name: held(people, name) for name in tables} == after
    deleted = {row["table"]: row["rows deleted"] for row in report["gone"]}
    assert {name: deleted[name] for name in tables} == {name: len(before[name]) - len(after[name]) for name in tables}
    # What the source has no more does not come back.
    for name, sync in syncs.items():
        if sync.strategy is not SyncStrategy.APPEND:
            pass_of(people.lake.spark, people.lake.duckdb, sync).run()
            assert not any(SYNCED in row for row in held(people, f"ratify.crm_{id_}.{name}"))

    with monkeypatch.context() as patch:
        now = expired(people, tables)
        assert all(holders(people.lake.folder(name), SYNCED) for name in tables if not name.endswith(".applied"))
        patch.setattr(time, "time", lambda: now)
        report = erased("--apply", "--reason", "request 19, the files", person=SYNCED)
    (people.lake.folder(tables[-1]) / "newest").unlink()
    left = {name: holders(people.lake.folder(name), SYNCED) for name in tables}
    assert {path.parent.name for paths in left.values() for path in paths} <= {"_delta_log", "_staged_commits"}
    remains = {each["place"]: each["what"] for each in report["remains"] if each["place"] in tables}
    assert remains == {name: counted(len(paths), "log file") for name, paths in left.items() if paths}

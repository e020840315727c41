"""`ratify erase`: what it finds, what it deletes, and that no file has the subject's value afterwards."""

import dataclasses
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ratify_lakehouse.catalog.dropped_tables import DroppedTable, all_dropped_tables
from ratify_lakehouse.catalog.table_listing import stored_tables
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.cli.erase_command import not_left
from ratify_lakehouse.components.subject_columns import SubjectColumns
from ratify_lakehouse.components.syncs.dead_letters import DEAD_LETTERS
from ratify_lakehouse.definitions import dropped_scan, project_tables, subject_survey
from ratify_lakehouse.definitions.erasure_plan import ErasurePlan, Remaining, TableHolding
from ratify_lakehouse.definitions.subject_places import other_places
from ratify_lakehouse.delta.table_clean import RETENTION
from ratify_lakehouse.engines.duckdb.subject_search import HeldIn, HoldingFile, action_names
from ratify_lakehouse.errors import NotConfigured
from ratify_lakehouse.ingest.ledger.ledger_queries import table_entries
from ratify_lakehouse.ingest.load.erased_subjects import ErasureKey
from ratify_lakehouse.landing.landing_zone import LandingZone
from ratify_lakehouse.sql.subject_match import Match
from tests.cli.test_cli_restore import given, ratify
from tests.components.test_yaml_tables import (
    BRONZE,
    ORDERS,
    SILVER,
    SILVER_SQL,
    Project,
    Shop,
    failed_checks,
    metadata,
    project,
    shop,
)
from tests.engines.lakehouse import engines, lake

__all__ = ["engines", "given", "lake", "project", "shop"]

PERSON = "Mia Muster"
# Whom a test has erased is dropped by the loads of all others.
LANDED = "Mia Landed"
TABLES = (("bronze", "orders"), ("silver", "orders"), ("silver", "orders_quarantine"), ("gold", "orders"))


def holders(folder: Path, value: str = PERSON) -> list[Path]:
    """The files below a folder that have a value: in decoded Parquet, or in their bytes."""
    found = list[Path]()
    for path in (path for path in folder.rglob("*") if path.is_file()):
        if path.suffix == ".parquet":
            text = f"SELECT count(*) FROM read_parquet('{path}') AS t WHERE contains(CAST(t AS VARCHAR), '{value}')"
            holds = bool(duckdb.sql(text).fetchall()[0][0])
        else:
            holds = value.encode() in path.read_bytes()
        if holds:
            found.append(path)
    return found


def listed_alone(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what other tests have in the catalog: it has tables that are damaged on purpose."""

    def listed(catalog: UnityCatalog) -> dict[str, Sequence[str]]:
        schemas = catalog.client.schemas
        # The schemas of all tests take seconds.
        ours = [
            each for each in schemas.list("ratify") if project.id in (each.name or "") or each.name == DEAD_LETTERS.layer
        ]
        with monkeypatch.context() as patch:
            patch.setattr(schemas, "list", lambda _: ours)
            found = stored_tables(catalog)
        return {name: columns for name, columns in found.items() if project.id in name or name == DEAD_LETTERS.table_name}

    def dropped(catalog: UnityCatalog, schemas: Iterable[str]) -> list[DroppedTable]:
        return [table for table in all_dropped_tables(catalog, schemas) if project.id in table.full_name]

    monkeypatch.setattr(subject_survey, "stored_tables", listed)
    monkeypatch.setattr(dropped_scan, "all_dropped_tables", dropped)


@pytest.fixture
def people(given: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Orders whose customer is the subject, with landed files that an erasure deletes, and a quarantine."""
    column = "{name: customer_name, pii: true, subject: customer}"
    landed = f"pattern: shop/*.csv\n  landed: delete\n  evolving: true\n  columns: [{column}]"
    given.project.write("bronze", "orders", BRONZE.replace("pattern: shop/*.csv", landed))
    given.project.write("silver", "orders", SILVER, SILVER_SQL.replace("nullif(trim(customer_name), '')", "customer_name"))
    monkeypatch.setattr(project_tables, "declared_tables", lambda: given.project.tables)
    monkeypatch.setenv("LANDING_URL", str(given.landing))
    listed_alone(given.project, monkeypatch)
    return given


def folders(shop: Shop) -> list[Path]:
    return [shop.lake.folder(f"ratify.{shop.project.schema(layer)}.{table}") for layer, table in TABLES]


def erased(*words: str, person: str = PERSON) -> dict[str, Any]:
    printed = ratify("erase", "--subject", f"customer={person}", *words, "--json")
    assert person not in printed
    return json.loads(printed)


@pytest.mark.long
@pytest.mark.stack
def test_no_file_has_the_value_afterwards(people: Shop, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not the least or the greatest value of the landed files, which the log would have, too.
    good = f"1,Ann,2.50,2026-01-01\n2,{PERSON},3.00,2026-01-01\n3,Zoe,1.00,2026-01-02\n"
    people.land("1.csv", good + f"4,Ann,-1,2026-01-02\n5,{PERSON},-1,2026-01-02\n6,Zoe,-1,2026-01-02\n")
    people.land("2.csv", "7,Ann,2.50,2026-01-01\n")
    assert people.run(checks=False).success
    planned = erased("--plan")
    matched = {row["table"].partition(".")[2]: row["of the subject"] for row in planned["tables"]}
    bronze, silver, quarantine, gold = (f"{people.project.schema(layer)}.{table}" for layer, table in TABLES)
    assert matched == {bronze: 2, silver: 1, quarantine: 1}, "silver by lineage, its quarantine by the JSON"
    assert [each["file"] for each in planned["landed files"]] == ["shop/1.csv"]
    assert people.lake.catalog.version(f"ratify.{bronze}") == 1
    assert gold not in planned["cannot be found by subject"]

    report = erased("--apply", "--reason", "request 17")
    assert {row["table"].partition(".")[2]: row["rows deleted"] for row in report["gone"]} == matched
    assert report["landed files deleted"] == [f"{bronze}: shop/1.csv"]
    assert [people.rows(layer, "count(*)", table)[0][0] for layer, table in TABLES] == [5, 3, 2, 2]
    assert [row["of the subject"] for row in report["tables"]] == [0, 0, 0]
    retained = {row["place"].partition(".")[2] for row in report["remains"] if "data file" in row["what"]}
    assert retained == {bronze, silver, quarantine}
    commits = people.lake.spark.history(f"ratify.{bronze}")
    assert [commit.record.get("acknowledged") for commit in commits if commit.operation == "MERGE"] == ["request 17"]
    assert not any(PERSON in str(commit) for commit in commits)

    # Rows that land again are dropped, those beside them are not.
    people.land("3.csv", f"8,Ann,2.50,2026-01-03\n2,{PERSON},3.00,2026-01-03\n9,Zoe,2.50,2026-01-03\n")
    done = people.run()
    assert metadata(done, "bronze")["rows of erased subjects dropped"] == 1
    assert failed_checks(done) <= {"amount_is_positive"}
    assert [people.rows(layer, "count(*)", table)[0][0] for layer, table in TABLES[:2]] == [7, 5]

    with monkeypatch.context() as patch:
        now = time.time() + 2 * 3600
        for folder, (layer, table) in zip(folders(people), TABLES, strict=True):
            name = f"ratify.{people.project.schema(layer)}.{table}"
            people.lake.run(f"ALTER TABLE {name} SET TBLPROPERTIES ('{RETENTION}' = 'interval 1 hour')")
            (folder / "newest").touch()
            os.utime(folder / "newest", (now, now))
        places = [*folders(people), people.landing, home / "erasures"]
        before = [path for place in places for path in holders(place)]
        assert {".parquet", ".csv"} <= {path.suffix for path in before}
        left = next(path for path in before if path.suffix == ".parquet" and "_delta_log" not in path.parts)
        content = left.read_bytes()
        patch.setattr(time, "time", lambda: now)
        report = erased("--apply", "--reason", "request 17, the files")
    # What Spark wrote into the log as the least and the greatest value of a file is named in the report.
    left_in_logs = [path for place in places for path in holders(place)]
    assert {path.parent.name for path in left_in_logs} <= {"_delta_log", "_staged_commits"}
    small = (path for path in home.rglob("*") if path.is_file() and path.stat().st_size < 1 << 24)
    others = (path for path in small if not {"_delta_log", "tmp"}.intersection(path.relative_to(home).parts))
    assert [path for path in others if PERSON.encode() in path.read_bytes()] == []
    found = {each["place"]: each["what"] for each in report["remains"] if people.project.id in each["place"]}
    assert all(re.fullmatch(r"\d+ log files?", what) for what in found.values()), found
    assert sum(int(what.split()[0]) for what in found.values()) == len(left_in_logs)
    # The search finds a file that is left.
    left.write_bytes(content)
    assert left in holders(left.parent)


@pytest.fixture
def rewriting(people: Shop) -> Shop:
    """Bronze alone, whose landed files an erasure rewrites."""
    for layer in ("silver", "gold"):
        shutil.rmtree(people.project.root / people.project.schema(layer))
    declaration = people.project.root / people.project.schema("bronze") / "orders" / "defs.yaml"
    declaration.write_text(declaration.read_text().replace("landed: delete", "landed: rewrite"))
    return people


@pytest.mark.stack
def test_landed_files_are_rewritten(rewriting: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    others, bronze = "1,Ann,2.50,2026-01-01\n", f"{rewriting.project.schema('bronze')}.orders"
    rewriting.land("1.csv", others + f"2,{LANDED},3.00,2026-01-01\n")
    rewriting.land("2.csv", f"3,{LANDED},2.50,2026-01-02\n")
    assert rewriting.run(checks=False).success
    hidden = [rewriting.landing / folder / "shop" for folder in ("_archive", "_dead_letter")]
    for folder in hidden:
        folder.mkdir(parents=True)
        (folder / "4.csv").write_text(ORDERS + f"5,Ann,1,2026-01-02\n6,{LANDED},1,2026-01-02\n")
    (hidden[1] / "4.csv.reason.json").write_text(json.dumps({"reason": f"{LANDED!r} is no number"}))
    partial = [hidden[0] / f".{number}.csv.part" for number in (1, 2)]
    for path in partial:
        path.write_text(f"6,{LANDED}")
    os.utime(partial[0], (1, 1))
    (hidden[1] / "5.csv").write_text(f"{ORDERS}7,{LANDED},1,2026")

    planned = erased("--plan", person=LANDED)
    reasons = {each["file"]: each["why it stays"] for each in planned["landed files"]}
    assert "cut off" in reasons.pop("shop/5.csv")
    assert reasons == dict.fromkeys(["shop/1.csv", "shop/2.csv", "shop/4.csv"], "")
    assert [each["what"] for each in planned["remains"] if each["place"].endswith("5.csv")] == [f"landed file of {bronze}"]
    report = erased("--apply", "--reason", "request 18", person=LANDED)
    assert sorted(report["landed files rewritten"]) == [
        *(f"{bronze}: shop/{number}.csv, without 1 row" for number in (1, 2, 4, 4)),
    ]
    assert (rewriting.landing / "shop" / "1.csv").read_text() == ORDERS + others
    assert not (rewriting.landing / "shop" / "2.csv").exists(), "it had no other rows"
    assert {(folder / "4.csv").read_text() for folder in hidden} == {ORDERS + "5,Ann,1,2026-01-02\n"}
    # A copy in the making belongs to a move that goes on.
    assert {path.name for path in holders(rewriting.landing, LANDED)} == {"5.csv", partial[1].name}
    partial[1].unlink()

    # The rewritten file is no new one, wherever it is; what landed at first is neither.
    with rewriting.lake.duckdb.session() as session:
        (source,) = rewriting.project.tables.sources
        assert table_entries(session, source).waiting(LandingZone(url=str(rewriting.landing)).files()) == []
    rewriting.land("3.csv", others)
    rewriting.land("1.csv", others + f"2,{LANDED},3.00,2026-01-01\n")
    (hidden[0] / "4.csv").rename(rewriting.landing / "shop" / "4.csv")
    done = rewriting.run()
    assert done.success
    assert failed_checks(done) == set()
    assert metadata(done, "bronze")["files repeated"] == 2
    assert rewriting.rows("bronze", "CAST(order_id AS INT), customer_name") == [(1, "Ann"), (5, "Ann")]
    assert erased("--apply", "--reason", "request 18, again", person=LANDED)["landed files rewritten"] == [
        f"{bronze}: shop/1.csv, without 1 row"
    ]


def test_what_is_not_erased_is_named() -> None:
    table = TableHolding("c.silver.t", [Match("who")], rows=3)
    unsearched = dataclasses.replace(table, full_name="c.old.t", unsearched="no files.")
    by_value = dataclasses.replace(table, full_name="c.crm.t", matched=1, undeclared=True)
    file = Remaining("/landed/f.zip", "rows", "it is deleted by hand", "packed")
    plan = ErasurePlan("user", "", [table, unsearched, by_value], [], [], {}, [file])
    left = plan.not_erased()
    assert left == ["c.old.t", "c.crm.t", "/landed/f.zip"]
    assert not_left(left, []) == left
    assert not_left(left, ["old.T", "c.crm.t"]) == ["/landed/f.zip"]
    assert not_left(left, ["old.t", "crm.t", "/landed/f.zip"]) == []
    assert [each.why for each in plan.remaining(0)] == [
        "no files.",
        "they have the value, but nothing says that it is this subject",
        "packed",
    ]


def test_what_is_asked_for_wrongly() -> None:
    def refused(*words: str) -> str:
        return ratify("erase", *words, exit_code=2)

    assert "give either --plan or --apply" in refused("--subject", "user=7")
    assert "give the reason" in refused("--subject", "user=7", "--apply")
    for value in ("", " ", "*", "%"):
        assert "give the exact value of one subject" in refused("--subject", f"user={value}", "--plan")
    assert "give KIND=VALUE" in refused("--subject", "7", "--plan")
    assert "would stay in the history" in refused("--subject", "user=Ann", "--apply", "--reason", "Ann asked for it")


def test_a_table_that_would_lose_all_rows_is_refused() -> None:
    table = TableHolding("c.silver.t", [Match("who")], rows=3, matched=3)
    plan = ErasurePlan("user", "", [table], [], [], {})
    assert "All 3 rows of c.silver.t" in plan.refusals()[0]
    assert plan.refusals(all_rows=True) == []
    letters = dataclasses.replace(table, set_aside=True)
    assert dataclasses.replace(plan, tables=[letters]).refusals() == []
    # Rows that have the value alone are not deleted, so they refuse nothing.
    assert dataclasses.replace(plan, tables=[dataclasses.replace(table, undeclared=True)]).refusals() == []
    append_only = dataclasses.replace(table, matched=1, refused="it only allows appends.")
    assert dataclasses.replace(plan, tables=[append_only]).refusals() == ["c.silver.t: it only allows appends."]


def test_until_when_files_remain() -> None:
    files = [HoldingFile("a", HeldIn.LIVE, 0), HoldingFile("b", HeldIn.OLD, 100), HoldingFile("l", HeldIn.LOG, 200)]
    table = TableHolding("c.silver.t", [Match("who")], files=files, retained_s=3600, log_retained_s=7200)
    plan = ErasurePlan("user", "", [table], [], [], {"gold.g": "no column"})
    data, log, unknown = plan.remaining(60_000.0)
    assert (data.what, data.until) == ("2 data files of old versions", "1970-01-01 17:40 UTC")
    assert (log.what, log.until) == ("1 log file", "1970-01-01 02:03 UTC")
    assert (unknown.place, unknown.why) == ("gold.g", "no column")
    (data, _) = dataclasses.replace(plan, tables=[dataclasses.replace(table, stays=["not allowed."])], unfound={}).remaining(
        0
    )
    assert (data.until, data.why) == ("unknown", "not allowed.")


@pytest.mark.parametrize("files", ["", "/landed/events"])
def test_files_of_records_are_named(files: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTS_FILES", files)
    (table,) = project_tables.record_tables()
    found = SubjectColumns({}, {table.declaration.table_name: "no column"})
    places = {each.place for each in other_places(project_tables.declared_tables(), found)}
    assert ("/landed/events" in places) == bool(files)


def test_what_a_log_has_of_a_subject() -> None:
    def named(stats: dict[str, Any], value: str, *match: str) -> bool:
        return action_names({"add": {"stats": json.dumps(stats)}}, [Match(*match or ("who",))], value)

    assert named({"minValues": {"who": "Ann"}}, "Ann")
    assert named({"maxValues": {"who": 7}}, "7")
    assert not named({"minValues": {"who": "Anna", "other": "Ann"}}, "Ann")
    assert named({"minValues": {"who": "x" * 32}}, "x" * 40)
    assert named({"maxValues": {"row": '{"who":"Ann"}'}}, "Ann", "row", "who")
    assert not named({"maxValues": {"row": '{"who":"Anna"}'}}, "Ann", "row", "who")
    info = {"commitInfo": {"operationParameters": {"predicate": "[\"(who = 'Ann')\"]"}}}
    assert action_names(info, [Match("who")], "Ann")
    assert not action_names({"commitInfo": {"userMetadata": "version 17"}}, [Match("who")], "7")


def test_the_hash_that_duckdb_computes_is_that_of_python(tmp_path: Path) -> None:
    key = ErasureKey.stored(tmp_path, create=True)
    assert (tmp_path / "erasure.key").stat().st_mode & 0o777 == 0o600
    assert ErasureKey.stored(tmp_path, create=True) == key
    for value in ("Ann", "Größe 7", "", "o'x"):
        ((computed,),) = duckdb.execute(f"SELECT {key.sql('user', '$v')}", {"v": value}).fetchall()
        assert computed == key.digest("user", value)
    (tmp_path / "erasure.key").unlink()
    with pytest.raises(NotConfigured, match="would be loaded again"):
        ErasureKey.stored(tmp_path)

"""A bronze table as Dagster runs it, and its checks: all pass on what it wrote, and each finds the harm it is there for."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.components.checks import landed_file_checks
from ratify_lakehouse.components.checks.check_definitions import REPORTED, ledger_check, table_checks
from ratify_lakehouse.components.checks.check_state import FULL
from ratify_lakehouse.components.checks.landed_file_checks import files_loaded_once
from ratify_lakehouse.components.checks.table_changes import last_new_rows, position
from ratify_lakehouse.components.table_asset import COMMITS, asset_key
from ratify_lakehouse.declarations import Column
from ratify_lakehouse.delta.table_repair import repair
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.ingest.file_source import Rewrite
from ratify_lakehouse.ingest.ledger.ledger_queries import table_entries
from ratify_lakehouse.ingest.load.batch_loading import load_batch
from tests.components.checked_tables import CheckedTable, evaluations, failed, failed_of
from tests.engines.lakehouse import Lakehouse, append, pairs
from tests.ingest.test_batch_loading import HEADER, Landing, new_source

pytestmark = [pytest.mark.stack, pytest.mark.locks("ledger of files"), pytest.mark.usefixtures("quick_creation")]


def test_what_a_run_reports_is_true(lake: Lakehouse, tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        table = CheckedTable(lake, tmp_path, instance)
        for name in ("1", "2", "3"):
            table.landing.put(f"{name}.csv", HEADER + f"A{name},x\nB{name},y\n")
        table.landing.put("4.csv", HEADER + "cut")
        said, verdicts = table.materialize(max_files=2)
        assert failed(verdicts) == {"files_accepted"}
        assert (said["dagster/row_count"], said["rows added"], said["Delta version"]) == (6, 6, 2)
        assert (said[COMMITS]["versions"], said["engine"]) == ([1, 2], "DuckDB")
        assert (said["files loaded"], said["files refused"], said["files repeated"]) == (3, 1, 0)
        assert said["last commit"] == "version 2: WRITE by DuckDB"
        assert 0 < said["seconds"] < 120
        preview = {row.data["code"] for row in said["preview"].records}
        assert (len(said["preview"].records), preview - {"A1", "A2", "A3", "B1", "B2", "B3"}) == (5, set())
        newest = {Path(row.data["file"]).name: row.data["status"] for row in said["newest files"].records}
        assert newest == {"1.csv": "loaded", "2.csv": "loaded", "3.csv": "loaded", "4.csv": "refused"}
        (refused,) = said["files not loaded"].records
        assert refused.data["file"].endswith("/4.csv")
        assert "cut off" in refused.data["reason"]

        # Nothing waits: a run makes no version.
        said, verdicts = table.materialize()
        assert failed(verdicts) == {"files_accepted"}
        assert (said["rows added"], said["Delta version"], said[COMMITS]["versions"]) == (0, 2, [])


def test_each_check_finds_its_harm(lake: Lakehouse, tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        table = CheckedTable(lake, tmp_path, instance)
        full_name = lake.full(table.source.table)
        table.landing.put("1.csv", HEADER + "A1,x\nB1,y\n")
        table.landing.put("4.csv", HEADER + "cut")
        # A check finds nothing new in a version that it has found before.
        table.materialize()
        # An external commit: rows that nobody landed, by an engine that does not write this table.
        lake.insert(table.source.table, f"VALUES ('ZZ', 'z', '{table.landing.folder}/9.csv', 1, now(), 'none')")
        assert failed(table.validate()) == {"files_accepted", "files_loaded_once"}
        # Taken out again, the counts are right; the history is not.
        lake.quick(f"DELETE FROM {full_name} WHERE code = 'ZZ'")
        assert failed(table.validate()) == {"files_accepted", "table_is_intact"}
        with lake.duckdb.session() as session:
            session.add_columns(table.source.table, [Column("surprise", "string")])
        intact = evaluations(table.run(dg.AssetSelection.checks(table.checks[0])))["table_is_intact"]
        assert "Append-only, but it has DELETE in version 3" in str(intact.description)
        assert "extra column surprise" in str(intact.description)
        # A run refuses to write to a table that is not as declared.
        table.landing.put("5.csv", HEADER + "C,c\n")
        assert not table.run(table.alone).success
        assert lake.version(table.source.table) == 4


def test_a_file_that_is_gone_is_found_and_its_landed_files_can_be_loaded_again(lake: Lakehouse, tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        table = CheckedTable(lake, tmp_path, instance)
        intact = dg.AssetSelection.checks(table.checks[0])

        def found() -> dg.AssetCheckEvaluation:
            (evaluation,) = table.run(intact).get_asset_check_evaluations()
            return evaluation

        name = f"bronze.{table.source.table.name}"
        table.landing.put("1.csv", HEADER + "A,x\nB,y\n")
        table.load()
        assert found().passed
        log = lake.another_duckdb().log(f"ratify.{name}")
        (file,) = log.files(log.refresh())
        log.storage.remove(file.path)
        harm = found()
        assert (harm.passed, harm.severity, harm.blocking) == (False, dg.AssetCheckSeverity.ERROR, True)
        said = {key: value.value for key, value in harm.metadata.items()}
        assert (said["files"], said["missing"], said["missing files"]) == (1, 1, file.path)
        assert said["repair"] == f"ratify repair {name}"
        assert repair(log) is not None
        assert found().passed
        said, verdicts = table.materialize(files=[f"{table.landing.folder}/1.csv"])
        assert (said["rows added"], said["dagster/row_count"], verdicts["files_loaded_once"]) == (2, 2, True)


def test_a_table_that_is_not_made_yet_lacks_nothing(lake: Lakehouse) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        checks = [table_checks(new_source("a").table), ledger_check(new_source("a").table)]
        done = dg.materialize(
            checks,
            selection=dg.AssetSelection.checks(*checks),
            instance=instance,
            resources={"duckdb": lake.duckdb, "spark": lake.spark},
        )
        found = [(each.passed, each.description) for each in done.get_asset_check_evaluations()]
        assert found == [(True, "The table does not exist yet.")] * 3


def test_a_table_that_is_gone_is_missed(lake: Lakehouse, tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        table = CheckedTable(lake, tmp_path, instance)
        table.landing.put("1.csv", HEADER + "A,x\n")
        table.load()
        lake.drop(table.source.table)
        found = evaluations(table.run(dg.AssetSelection.checks(table.checks[0])))["table_is_intact"]
        assert (found.passed, table.source.table.name in str(found.description)) == (False, True)


def test_a_check_compares_what_is_new_and_in_full_what_was_there(lake: Lakehouse, tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        table = CheckedTable(lake, tmp_path, instance)
        full_name = lake.full(table.source.table)
        # All that compare landed files with what was loaded of them.
        everything = dg.AssetSelection.checks(*table.checks[1:])

        def read() -> int:
            found = evaluations(table.run(everything))["files_loaded_once"]
            assert found.passed, found.description
            return int(str(found.metadata["files read"].value))

        for name in ("1", "2", "3", "4"):
            table.landing.put(f"{name}.csv", HEADER + f"A{name},x\nB{name},y\n")
        # One that was not loaded is not compared.
        table.landing.load("1.csv", "2.csv", "3.csv")
        assert read() == 3
        table.landing.load("4.csv")
        assert read() == 1
        # A file that is gone, and was compared before, is no fault; but in full, nothing is compared only once.
        for file in (tmp_path / table.landing.folder).iterdir():
            file.unlink()
        assert read() == 0
        in_full = evaluations(table.run(everything, tags={FULL: "full"}))["files_loaded_once"]
        assert (in_full.passed, in_full.metadata["files read"].value) == (False, 0)
        # New rows of an old file, which no load brought, are new: the old ones need not be read.
        lake.quick(f"INSERT INTO {full_name} VALUES ('ZZ', 'z', '{table.landing.folder}/1.csv', 1, now(), 'none')")
        found = table.run(everything)
        assert "files_loaded_once" in failed_of(found)
        assert "files_loaded_once" in failed_of(table.run(everything))


def test_an_overwrite_is_found_although_delta_calls_it_a_write(lake: Lakehouse, tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        replace_where = "INSERT INTO {table} REPLACE WHERE code = 'A' VALUES ('A', 'changed', 'f', 1, now(), 'none')"
        overwrite = "INSERT OVERWRITE {table} SELECT * FROM {table} WHERE code <> 'A'"
        for run, statement in ((lake.run, replace_where), (lake.quick, overwrite)):
            root = tmp_path / statement.split()[1].lower()
            root.mkdir()
            table = CheckedTable(lake, root, instance)
            history = dg.AssetSelection.checks(table.checks[0])
            table.landing.put("1.csv", HEADER + "A,x\nB,y\n")
            table.landing.load()
            if statement is replace_where:
                assert "table_is_intact" not in failed_of(table.run(history))
            run(statement.format(table=lake.full(table.source.table)))
            if statement is replace_where:
                assert "table_is_intact" in failed_of(table.run(history))
            # Until somebody has seen to it, also after later appends.
            table.landing.put("2.csv", HEADER + "C,y\n")
            table.landing.load("2.csv")
            assert "table_is_intact" in failed_of(table.run(history))


def test_a_file_whose_rows_are_replaced_is_no_rewrite_where_that_is_declared(lake: Lakehouse, tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        table = CheckedTable(lake, tmp_path, instance, on_rewrite=Rewrite.REPLACE)
        history = dg.AssetSelection.checks(table.checks[0])
        table.landing.put("1.csv", HEADER + "A,x\nB,y\n")
        table.load()
        table.landing.put("1.csv", HEADER + "A,z\n")
        said, verdicts = table.materialize()
        assert (said["rows added"], failed(verdicts)) == (-1, set())
        lake.run(
            f"INSERT INTO {lake.full(table.source.table)} REPLACE WHERE `_source_file` = '{table.landing.folder}/1.csv' "
            f"VALUES ('A', 'forged', '{table.landing.folder}/1.csv', 1, now(), 'none')"
        )
        assert "table_is_intact" in failed_of(table.run(history))


def test_a_file_that_has_one_of_its_earlier_contents_again_is_compared(lake: Lakehouse, tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        table = CheckedTable(lake, tmp_path, instance, on_rewrite=Rewrite.APPEND)
        for rows in ("A,x\nB,y\n", "C,z\n", "A,x\nB,y\n"):
            table.landing.put("1.csv", HEADER + rows)
            table.load()
        found = evaluations(table.run(dg.AssetSelection.checks(*table.checks), tags={FULL: "true"}))["files_loaded_once"]
        assert (found.passed, found.metadata["files read"].value, found.metadata["rows in files"].value) == (True, 1, 2)


def test_rows_that_a_run_reported_and_the_table_lacks_are_found(lake: Lakehouse) -> None:
    table = lake.create(pairs())
    key, full_name = asset_key(table), lake.full(table)
    append(lake.duckdb, table, "SELECT 1, 'a'", "load-1")
    check = table_checks(table)
    resources = {"duckdb": lake.another_duckdb(), "spark": lake.spark}

    with dg.DagsterInstance.ephemeral() as instance:

        def found(added: int, rows: int, version: int, *versions: int) -> tuple[bool, dg.AssetCheckSeverity, str]:
            """What the check says where a run has reported this."""
            claimed = {"rows added": added, "dagster/row_count": rows, "Delta version": version}
            claimed |= {COMMITS: dg.MetadataValue.json({"versions": versions})}
            instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata=claimed))
            done = dg.materialize(
                [check],
                selection=dg.AssetSelection.checks(check),
                instance=instance,
                resources=resources,
                # A column that is not declared fails the other check, which blocks.
                raise_on_error=False,
            )
            reported = evaluations(done)[REPORTED]
            return reported.passed, reported.severity, reported.description or ""

        error, warn = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN
        assert found(1, 1, 1, 0, 1)[0]
        assert found(1, 2, 1, 0, 1)[1:] == (error, "Rows in the table at version 1: 2 reported, 1 counted.")
        assert found(2, 1, 1, 1)[1:] == (error, "Rows added: 2 reported, 1 counted.")
        # A run that finds its work done by another claims only what it did.
        assert found(0, 1, 1)[0]
        # Columns that we add are maintenance; what others do is no more than a warning, as long as all rows stay.
        with lake.duckdb.session() as session:
            session.add_columns(table, [Column("more", "string")])
        assert found(0, 1, 2)[0]
        lake.quick(f"ALTER TABLE {full_name} SET TBLPROPERTIES ('a' = 'b')")
        passed, severity, text = found(0, 1, 3)
        assert (passed, severity) == (False, warn)
        assert "1 commit that no run of this table reported: version 3 (SET TBLPROPERTIES by " in text
        lake.quick(f"INSERT INTO {full_name} (id, v) VALUES (2, 'b')")
        assert found(0, 2, 4)[:2] == (False, error)


def test_a_refused_file_fails_its_check_until_it_is_corrected_or_gone(lake: Lakehouse, tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        table = CheckedTable(lake, tmp_path, instance)
        accepted = dg.AssetSelection.checks(table.checks[-1])

        def found() -> dg.AssetCheckEvaluation:
            return evaluations(table.run(accepted))["files_accepted"]

        for name in ("1", "2", "3"):
            table.landing.put(f"{name}.csv", HEADER + f"A{name},x\n")
        table.landing.put("3.csv", HEADER + "cut")
        table.landing.put("4.csv", HEADER + "also cut")
        table.load()
        refused = found()
        assert (refused.passed, refused.severity, refused.blocking) == (False, dg.AssetCheckSeverity.WARN, False)
        for name in ("3.csv", "4.csv"):
            assert f"{table.landing.folder}/{name}: the last line is cut off" in (refused.description or "")
        # The run has moved them to the dead letters: one is corrected, and one was no file of ours.
        table.landing.put("3.csv", HEADER + "C,x\n")
        table.load()
        assert found().metadata["refused"].value == 1
        (tmp_path / "_dead_letter" / table.landing.folder / "4.csv").unlink()
        assert found().passed
        # Where refused files stay, each is refused as it is, and not once it was written again.
        table.landing.put("5.csv", HEADER + "cut")
        table.landing.load("5.csv")
        assert "5.csv: the last line" in (found().description or "")
        table.landing.put("5.csv", HEADER + "E,x\n")
        assert found().passed


def test_loads_while_a_check_reads_are_no_fault(lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landing = Landing(lake, tmp_path, new_source("code", "name"))
    landing.put("1.csv", HEADER + "A,x\n")
    landing.load()
    loading, waiting, read = list[int](), [5, 4, 3, 2], DuckDBSession.rows

    def load_one() -> None:
        if waiting and not loading:
            loading.append(file := waiting.pop())
            landing.put(f"{file}.csv", HEADER + f"{file},x\n")
            files = landing.zone.look([f"{landing.folder}/{file}.csv"])
            load_batch(lake.another_duckdb(), landing.zone, landing.source, files)
            loading.clear()

    def reading(session: DuckDBSession, *query: Any) -> Any:
        """Load a file between the reading of one table and of the other, whichever is read first."""
        load_one()
        return read(session, *query)

    def reading_ledger(*given: Any) -> Any:
        load_one()
        return table_entries(*given)

    monkeypatch.setattr(DuckDBSession, "rows", reading)
    monkeypatch.setattr(landed_file_checks, "table_entries", reading_ledger)
    found = files_loaded_once(landing.zone, lake.another_duckdb(), landing.source)
    assert found.passed, found.description
    assert not waiting


def test_data_is_as_old_as_the_last_new_rows_whatever_ran_since(
    lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(lake, tmp_path, new_source("code", "name"))
    log = lake.duckdb.log(lake.full(landing.source.table))
    assert last_new_rows(log, position(log).version) is None
    landing.put("1.csv", HEADER + "A,x\n")
    landing.load()
    loaded = last_new_rows(log, position(log).version)
    assert loaded is not None
    lake.quick(f"ALTER TABLE {lake.full(landing.source.table)} SET TBLPROPERTIES ('a' = 'b')")
    assert (landing.version(), last_new_rows(log, position(log).version)) == (2, loaded)

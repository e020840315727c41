"""Commits that somebody acknowledged: no check fails for them, and all show who says why."""

from pathlib import Path

import dagster as dg
import pytest

from ratify_lakehouse.components.checks.acknowledged_commits import acknowledge, acknowledged, acknowledged_versions
from ratify_lakehouse.components.checks.check_state import FULL
from ratify_lakehouse.errors import VersionMissing
from tests.components.checked_tables import CheckedTable, evaluations, failed, failed_of
from tests.engines.lakehouse import Lakehouse
from tests.ingest.test_batch_loading import HEADER

pytestmark = pytest.mark.stack


@pytest.mark.long
def test_an_acknowledged_commit_is_shown_and_fails_no_check(lake: Lakehouse, tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        table = CheckedTable(lake, tmp_path, instance)
        full_name, history = lake.full(table.source.table), dg.AssetSelection.checks(table.checks[0])
        table.landing.put("1.csv", HEADER + "A,x\nB,y\n")
        assert failed(table.materialize()[1]) == set()
        lake.run(f"DELETE FROM {full_name} WHERE code = 'A'")
        objecting, missing = {"table_is_intact"}, {"files_loaded_once"}
        assert failed(table.validate()) == objecting | missing

        with pytest.raises(VersionMissing, match="no version 7 in its history, only 0 to 2"):
            acknowledge(lake.spark, full_name, [7], "a typing error")
        with pytest.raises(VersionMissing, match=r"Version 0 .* created it"):
            acknowledge(lake.spark, full_name, [0], "a typing error")
        assert failed_of(table.run(history)) == objecting
        acknowledge(lake.spark, full_name, [2], "request 17: it's {deleted}")
        table_id = lake.catalog.table(full_name).table_id or ""
        with lake.duckdb.session() as session:
            before = acknowledged(session, table_id)
        assert [(each.version, each.operation, each.engine) for each in before.values()] == [(2, "DELETE", "Spark")]
        # Who acknowledges again changes nothing.
        acknowledge(lake.spark, full_name, [2], "another reason")
        with lake.duckdb.session() as session:
            assert acknowledged(session, table_id) == before
        assert acknowledged_versions(lake.spark, full_name) == {2}

        done = table.run(dg.AssetSelection.checks(*table.checks))
        assert failed_of(done) == set()
        shown = evaluations(done)["table_is_intact"].metadata["acknowledged commits"].value
        assert str(shown).startswith("version 2, DELETE: request 17: it's {deleted} (")
        # Only that commit is accepted, and also where everything is compared.
        lake.run(f"DELETE FROM {full_name} WHERE code = 'B'")
        everything, full = dg.AssetSelection.checks(*table.checks), {FULL: "full"}
        assert failed_of(table.run(everything, full)) == objecting | missing
        acknowledge(lake.spark, full_name, [3], "request 18")
        assert failed_of(table.run(everything, full)) == set()
        # The next load goes on, and so does what is downstream of the table.
        table.landing.put("2.csv", HEADER + "C,y\n")
        assert failed(table.materialize()[1]) == set()

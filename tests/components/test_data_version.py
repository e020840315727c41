"""The data version of a bronze table, which decides whether what is downstream runs."""

from pathlib import Path

import dagster as dg
import pytest

from resources.duckdb.table_compaction import compact
from tests.components.test_checks import CheckedTable
from tests.ingest.test_batch_loading import HEADER
from tests.resources.lakehouse import Lakehouse

pytestmark = pytest.mark.stack


def test_the_data_version_changes_when_something_landed(lake: Lakehouse, tmp_path: Path) -> None:
    """What is downstream runs when it changes: a run that found nothing starts nothing, and old bytes that land again do."""
    with dg.DagsterInstance.ephemeral() as instance:
        table = CheckedTable(lake, tmp_path, instance)

        def version() -> str:
            done = table.run(dg.AssetSelection.assets(table.key))
            (event,) = done.get_asset_materialization_events()
            return event.step_materialization_data.materialization.tags["dagster/data_version"]

        table.landing.put("1.csv", HEADER + "A,x\n")
        assert [version(), version()] == ["1", "1"]
        table.landing.put("2.csv", HEADER + "A,x\n")
        assert [version(), version()] == ["1.1", "1.1"]
        table.landing.put("3.csv", HEADER + "B,x\n")
        assert [version(), version()] == ["2.1", "2.1"]
        # A compaction changes no row, so nothing downstream has to run.
        log = lake.duckdb.log(lake.full(table.source.table))
        with lake.duckdb.session() as session:
            assert compact(session, lake.catalog, log, lake.full(table.source.table))
        assert log.refresh().version == 3
        assert version() == "2.1"
        table.landing.put("4.csv", HEADER + "C,x\n")
        assert version() == "4.1"

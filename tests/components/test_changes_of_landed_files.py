"""Strategy `incremental` over landed files: after each landing a table and its quarantine equal those of `full`."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.spark.spark_engine import Spark
from tests.components.begun_tables import begin_declared
from tests.components.declared_projects import Shop, causes, metadata
from tests.components.test_reconcile import BRONZE, SILVER, SQL, land

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation", "no_previews")]
TABLES = {"orders": "incremental", "orders_again": "full"}


class Landings:
    """Random files of orders: new rows, good and bad, of known keys and of others; and contents that land again."""

    def __init__(self, shop: Shop, seed: int, *, feed: bool = True) -> None:
        self.shop, self.chance = shop, random.Random(seed)  # noqa: S311 files, not keys
        self.contents, self.files = list[Sequence[str]](), 0
        bronze = BRONZE.replace("  freshness: {}\n", "  change_data_feed: true\n" if feed else "")
        shop.project.write("bronze", "orders", bronze)

    def declare(self) -> None:
        """Declare the tables."""
        shop = self.shop
        silver = (
            SILVER.replace("SCHEMA", shop.project.schema("bronze"))
            .replace("ENGINE", "spark")
            .replace("  freshness: {}\n", "")
        )
        for name, strategy in TABLES.items():
            declared = silver.replace("  keys:", f"  strategy: {strategy}\n  keys:")
            if name != "orders":
                # The quarantine of rows, not of rows of the input.
                declared = "".join(line for line in declared.splitlines(True) if "reconcile" not in line)
            shop.project.write("silver", name, declared, SQL)

    def one(self) -> None:
        if self.contents and self.chance.random() < 0.35:
            rows = self.chance.choice(self.contents)
        else:
            number = self.chance.randint
            rows = [f"{number(1, 8)},{self.chance.choice((number(1, 9), -1, 'x'))}" for _ in range(number(1, 4))]
            self.contents.append(rows)
        self.files += 1
        land(self.shop, f"{self.files}.csv", *rows)

    def run(self) -> dict[str, Any]:
        """Run, compare both tables, and return what the run said of the incremental one."""
        versions = self.versions()
        done = self.shop.run(checks=False)
        assert done.success, causes(done)
        by_table = {name: self.shop.rows("silver", "id, amount, _source_file, _source_row", name) for name in TABLES}
        assert by_table["orders"] == by_table["orders_again"]
        quarantined = "get_json_object(row, '$.landed') AS landed, rule"
        bad = self.shop.rows("silver", f"{quarantined}, CAST(count(*) AS INT)", "orders_quarantine GROUP BY 1, 2")
        every = self.shop.rows("silver", f"{quarantined}, CAST(sum(rows) AS INT)", "orders_again_quarantine GROUP BY 1, 2")
        assert sorted(bad) == sorted(every)
        checks = {
            each.asset_key.path[2]: each for each in done.get_asset_check_evaluations() if "positive" in each.check_name
        }
        # Whatever a pass computes, the check fails as long as there is a row that fails.
        assert checks["orders"].passed == checks["orders_again"].passed == (not bad)
        if "failed in all" in checks["orders"].metadata:
            assert checks["orders"].metadata["failed in all"].value == sum(number for *_, number in bad)
        assert all(after - before <= 1 for before, after in zip(versions, self.versions(), strict=True) if before > 0)
        return metadata(done, "silver")

    def versions(self) -> list[int]:
        spark, schema = self.shop.lake.spark, self.shop.project.schema("silver")
        known = [f"ratify.{schema}.{name}" for name in ("orders", "orders_quarantine")]
        return [spark.catalog.version(name) if spark.session.catalog.tableExists(name) else -1 for name in known]

    def passes(self, number: int) -> None:
        """Passes after the first one, each over some landings."""
        for _ in range(number):
            for _ in range(self.chance.randint(0, 3)):
                self.one()
            said = self.run()
            assert said["strategy"] == "incremental", said


def test_they_equal_the_whole_query(shop: Shop) -> None:
    landings = Landings(shop, 11)
    land(shop, "first.csv", "1,5")
    # Until there are tables, it loads the file alone.
    assert shop.run(checks=False).success
    landings.declare()
    for table in shop.project.tables.sql_tables:
        begin_declared(shop.lake, table, "VALUES (1, 5, 'shop/first.csv', 1)")
    landings.passes(1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20, 30))
def test_they_equal_the_whole_query_at_length(shop: Shop, seed: int) -> None:
    landings = Landings(shop, seed, feed=seed % 3 > 0)
    landings.declare()
    # Until there is a row, there is no commit that says what was computed.
    land(shop, "first.csv", "1,5")
    assert landings.run()["computed in full because"] == "the table is new"
    landings.passes(25)


@pytest.fixture
def landed(shop: Shop) -> Landings:
    landings = Landings(shop, 3)
    landings.declare()
    land(shop, "first.csv", "1,5", "2,-1", "3,x")
    landings.run()
    return landings


# tests/components/test_changes_killed.py has a short form, and the random passes of test_changes_differential.py are killed.
@pytest.mark.long
@pytest.mark.parametrize("committed", [1, 2])
def test_a_quarantine_that_a_killed_pass_left_behind_is_made_good(
    landed: Landings, committed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass dies after its commit to the table, or after that to the quarantine, too."""
    merge, commits = Spark.merge_changes, list[str]()

    def dying(spark: Spark, declaration: Any, *arguments: Any) -> WriteResult:
        done = merge(spark, declaration, *arguments)
        commits.append(declaration.name)
        if len(commits) == committed:
            raise KeyboardInterrupt("killed")
        return done

    land(landed.shop, "second.csv", "1,-5", "2,7", "4,4")
    with monkeypatch.context() as patch:
        patch.setattr(Spark, "merge_changes", dying)
        assert not landed.shop.run(checks=False).success
    assert commits == ["orders", "orders_quarantine"][:committed]
    said = landed.run()
    if committed == 1:
        assert said["computed in full because"] == "its quarantine is not as the last pass left it"
    else:
        assert said["strategy"] == "incremental"
    land(landed.shop, "third.csv", "2,-9")
    assert landed.run()["strategy"] == "incremental"


@pytest.mark.long
def test_somebody_else_in_the_quarantine(landed: Landings) -> None:
    landed.shop.lake.quick(f"DELETE FROM {landed.shop.project.schema('silver')}.orders_quarantine")
    land(landed.shop, "second.csv", "9,9")
    assert landed.run()["computed in full because"] == "its quarantine is not as the last pass left it"
    landed.shop.lake.quick(f"DROP TABLE {landed.shop.project.schema('silver')}.orders_quarantine")
    land(landed.shop, "third.csv", "8,8")
    assert landed.run()["computed in full because"] == "its quarantine is missing"
    land(landed.shop, "fourth.csv", "8,-8")
    assert landed.run()["keys affected"] == 1

"""What Flink writes in the cross-engine proof: a table of its own, and a few rows into the orders that all engines share."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from assets.cross_engine.tables import ORDERS, ORDERS_FLINK
from assets.tables import Written, asset_key, result, table_spec
from resources.catalog import UnityCatalog
from resources.errors import FlinkFailed, FlinkUnavailable
from resources.flink import Flink
from resources.flink_output import FlinkRun
from resources.flink_sql import Insert
from resources.history import Engine
from resources.spark import Spark
from resources.tables import TableDeclaration

CHECK = "flink_writes"


def _orders(table: TableDeclaration, first_key: int, factor: int, comment: str, rows: int, rows_per_second: int) -> Insert:
    """Orders with the keys after `first_key`, by which they are told from those of TPC-H and of other engines."""
    columns = (
        f"{first_key} + seq",
        "MOD(seq, 1500) + 1",
        "'O'",
        f"MOD(seq * {factor}, 1000)",
        "CURRENT_DATE",
        "'3-MEDIUM'",
        "'Clerk#external-flink-stream'",
        "0",
        f"CONCAT('{comment} @ seq=', CAST(seq AS STRING))",
    )
    return Insert(table, f"ratify-{table.layer}-{table.name}", rows, rows_per_second, columns)


OWN_KEY, SHARED_KEY = 9_200_000_000, 9_300_000_000
OWN = _orders(ORDERS_FLINK, OWN_KEY, 7, "streamed by external Flink", rows=3000, rows_per_second=300)
SHARED = _orders(ORDERS, SHARED_KEY, 11, "inserted into shared orders by external Flink", rows=10, rows_per_second=10)
_FIRST_KEYS = {ORDERS_FLINK.name: OWN_KEY, ORDERS.name: SHARED_KEY}


@dataclass(frozen=True)
class Found:
    """What a job left in its table.

    Attributes:
        insert: What it was to write.
        rows: Rows with its keys.
        keys: Different ones of them.
        versions: Commits that Flink made meanwhile.
        checkpoints: That the job completed; each is one commit, even of no rows.
    """

    insert: Insert
    rows: int
    keys: int
    versions: tuple[int, ...]
    checkpoints: int

    @property
    def wrong(self) -> str:
        """What is not as it should be; empty where all is."""
        name, wanted = self.insert.table.name, self.insert.rows
        if (self.rows, self.keys) != (wanted, wanted):
            return f"{name}: {self.rows} rows with {self.keys} keys, not {wanted} rows"
        if not 0 < len(self.versions) <= self.checkpoints:
            return f"{name}: {len(self.versions)} commits by Flink for {self.checkpoints} checkpoints"
        return ""


@dg.multi_asset(
    name=ORDERS_FLINK.name,
    specs=[table_spec(ORDERS_FLINK, [asset_key(ORDERS)]).replace_attributes(group_name="cross_engine")],
    check_specs=[
        dg.AssetCheckSpec(
            CHECK,
            asset=asset_key(ORDERS_FLINK),
            blocking=True,
            description="Flink's rows are all there, once, in both tables, by commits of Flink. A warning, and not passed, "
            "where Delta's connector for Flink is not there; an error where its job failed or its rows are not right.",
        )
    ],
)
def orders_flink(
    context: dg.AssetExecutionContext, spark: Spark, flink: Flink, catalog: UnityCatalog
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Orders that Flink makes, by a commit a checkpoint; ten go to the shared orders."""
    created = spark.ensure_table(ORDERS_FLINK)
    spark.ensure_table(ORDERS)
    before = {insert.table.name: _cleared(spark, catalog, insert.table) for insert in (OWN, SHARED)}
    found = list[Found]()
    try:
        run = flink.insert([OWN, SHARED])
        found = [_found(spark, insert, before[insert.table.name], run) for insert in (OWN, SHARED)]
        check = written(found, run)
    except FlinkUnavailable as error:
        context.log.warning("Flink did not run: %s", error)
        check = unavailable(error)
    except FlinkFailed as error:
        context.log.error("Flink failed: %s", error)  # noqa: TRY400 the error says all that its traceback would
        check = _check(False, {"status": "failed", "error": str(error)})
    own = next((each for each in found if each.insert is OWN), None)
    rows = spark.count(ORDERS_FLINK)
    wrote = Written(
        version=catalog.version(ORDERS_FLINK.full_name(catalog.connection.name)),
        rows=rows,
        added=rows,
        versions=[*([0] if created else []), *(own.versions if own else ())],
    )
    yield result(ORDERS_FLINK, wrote)
    yield check


def written(found: list[Found], run: FlinkRun) -> dg.AssetCheckResult:
    """Judge what the jobs left in the tables."""
    wrong = [each.wrong for each in found if each.wrong]
    metadata: dict[str, Any] = {
        "status": "wrong" if wrong else "written",
        "jobs": dg.MetadataValue.table(
            [dg.TableRecord({**vars(job), "error": job.error or "-"}) for job in run.jobs] or [dg.TableRecord({"name": "-"})]
        ),
    }
    for each in found:
        name = each.insert.table.name
        metadata |= {f"{name}: rows": each.rows, f"{name}: commits": len(each.versions)}
    if wrong:
        metadata["wrong"] = "; ".join(wrong)
    return _check(not wrong, metadata)


def unavailable(error: FlinkUnavailable) -> dg.AssetCheckResult:
    """Say that Flink was not run: not passed, and yet nothing that what comes after should wait for."""
    metadata = {"status": "unavailable", "missing": ", ".join(error.missing) or "-", "what to do": str(error)}
    return _check(False, metadata, dg.AssetCheckSeverity.WARN)


def _check(
    passed: bool, metadata: Mapping[str, Any], severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=asset_key(ORDERS_FLINK), check_name=CHECK, passed=passed, metadata=metadata, severity=severity
    )


def _where(table: TableDeclaration, catalog: str) -> str:
    first = _FIRST_KEYS[table.name]
    # Each engine of the proof has a hundred million keys of its own.
    return f"FROM {table.full_name(catalog)} WHERE o_orderkey > {first} AND o_orderkey <= {first + 100_000_000}"


def _cleared(spark: Spark, catalog: UnityCatalog, table: TableDeclaration) -> int:
    """Delete what an earlier run of this asset wrote, and return the table's version."""
    name = catalog.connection.name
    if spark.rows(spark.sql(f"SELECT 1 {_where(table, name)} LIMIT 1")):
        spark.rows(spark.sql(f"DELETE {_where(table, name)}"))
    return catalog.version(table.full_name(name))


def _found(spark: Spark, insert: Insert, before: int, run: FlinkRun) -> Found:
    table, catalog = insert.table, spark.catalog.connection.name
    query = f"SELECT count(*) AS n, count(DISTINCT o_orderkey) AS keys {_where(table, catalog)}"
    counted = spark.rows(spark.sql(query))[0]
    commits = [c for c in spark.history(table.full_name(catalog)) if c.version > before and c.engine is Engine.FLINK]
    job = next((job for job in run.jobs if job.name == f"{table.layer}.{table.name}"), None)
    return Found(
        insert,
        int(counted["n"]),
        int(counted["keys"]),
        tuple(commit.version for commit in reversed(commits)),
        job.checkpoints if job else 0,
    )

"""What Flink writes in the cross-engine proof: a table of its own, and a few rows into the orders that all engines share."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from ratify_lakehouse.components.table_asset import TableChange, asset_key, result, rows_version
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.flink.flink_engine import Flink
from ratify_lakehouse.engines.flink.flink_run import FlinkRun
from ratify_lakehouse.engines.flink.flink_sql import Insert
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import FlinkFailed, FlinkUnavailable
from ratify_lakehouse.proof import proof_ledger
from ratify_lakehouse.proof.proof_report import UNAVAILABLE
from ratify_lakehouse.proof.proof_rows import BY_FLINK, BY_FLINK_SHARED
from ratify_lakehouse.proof.proof_steps import Step, step_table
from ratify_lakehouse.proof.proof_tables import ORDERS, ORDERS_FLINK
from ratify_lakehouse.proof.row_digest import Block, Digest, DigestPart, by_spark
from ratify_lakehouse.proof.spark_steps import name_of

CHECK = "flink_writes"


def _orders(table: TableDeclaration, block: Block, factor: int, comment: str, rows_per_second: int) -> Insert:
    """Orders with the keys of a block, in words that Spark reads as Flink does."""
    columns = (
        f"{block.first - 1} + seq",
        "MOD(seq, 1500) + 1",
        "'O'",
        f"MOD(seq * {factor}, 1000)",
        "DATE '2026-04-23'",
        "'3-MEDIUM'",
        "'Clerk#external-flink-stream'",
        "0",
        f"CONCAT('{comment} @ seq=', CAST(seq AS STRING))",
    )
    return Insert(table, f"ratify-{table.layer}-{table.name}", len(block.keys), rows_per_second, columns)


OWN = _orders(ORDERS_FLINK, BY_FLINK, 7, "streamed by external Flink", rows_per_second=300)
SHARED = _orders(ORDERS, BY_FLINK_SHARED, 11, "inserted into shared orders by external Flink", rows_per_second=10)
_BLOCKS = {ORDERS_FLINK.name: BY_FLINK, ORDERS.name: BY_FLINK_SHARED}


@dataclass(frozen=True)
class Found:
    """What a job wrote to its table.

    Attributes:
        insert: What it was to write.
        expected: The digest of that.
        digest: Of the rows with its keys.
        versions: Flink's commits meanwhile.
        checkpoints: That the job completed; each is one commit at most.
    """

    insert: Insert
    expected: Digest
    digest: Digest
    versions: tuple[int, ...]
    checkpoints: int

    @property
    def wrong(self) -> str:
        """What is wrong; empty if nothing is."""
        name = self.insert.table.name
        if self.digest.rows != self.expected.rows:
            return f"{name}: {self.digest.rows} rows, not {self.expected.rows}"
        if self.digest != self.expected:
            return f"{name}: {self.digest.rows} rows, but not those that Flink was to write"
        if not 0 < len(self.versions) <= self.checkpoints:
            return f"{name}: {len(self.versions)} commits by Flink for {self.checkpoints} checkpoints"
        return ""

    @property
    def entry(self) -> proof_ledger.ProofEntry:
        """Its entry for the ledger."""
        name = self.insert.table.name
        return proof_ledger.ProofEntry(
            Step.FLINK, Engine.FLINK, name, "WRITE", self.versions[-1], _BLOCKS[name], self.expected
        )


@dg.multi_asset(
    name=ORDERS_FLINK.name,
    specs=[step_table(Step.FLINK, ORDERS_FLINK)],
    check_specs=[
        dg.AssetCheckSpec(
            CHECK,
            asset=asset_key(ORDERS_FLINK),
            blocking=True,
            description="All of Flink's rows are in both tables, once, by commits of Flink. A warning, and not passed, if "
            "Flink is missing; an error if its job failed or its rows are wrong.",
        )
    ],
)
def orders_flink(
    context: dg.AssetExecutionContext, spark: Spark, flink: Flink, duckdb: DuckDB
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Orders that Flink generates, one commit a checkpoint; ten go to the shared orders."""
    created = spark.ensure_table(ORDERS_FLINK)
    spark.ensure_table(ORDERS)
    before = {insert.table.name: _cleared(spark, insert.table) for insert in (OWN, SHARED)}
    found = list[Found]()
    try:
        run = flink.insert([OWN, SHARED])
        found = [_found(spark, insert, before[insert.table.name], run) for insert in (OWN, SHARED)]
        check = written(found, run)
        if check.passed:
            with duckdb.session() as session:
                proof_ledger.record(session, proof_ledger.current(session), [each.entry for each in found])
    except FlinkUnavailable as error:
        context.log.warning("Flink did not run: %s", error)
        check = unavailable(error)
    except FlinkFailed as error:
        context.log.error("Flink failed: %s", error)  # noqa: TRY400 the error is as clear as its traceback
        check = _check(False, {"status": "failed", "error": str(error)})
    own = next((each for each in found if each.insert is OWN), None)
    name, rows = spark.full_name(ORDERS_FLINK), spark.count(ORDERS_FLINK)
    version = spark.catalog.version(name)
    wrote = TableChange(
        version=version,
        rows=rows,
        added=rows,
        versions=[*([0] if created else []), *(own.versions if own else ())],
        rows_version=rows_version(spark, name, version),
    )
    yield result(ORDERS_FLINK, wrote)
    yield check


def written(found: list[Found], run: FlinkRun) -> dg.AssetCheckResult:
    """Check the rows that the jobs wrote to the tables."""
    wrong = [each.wrong for each in found if each.wrong]
    metadata: dict[str, Any] = {
        "status": "wrong" if wrong else "written",
        "jobs": dg.MetadataValue.table(
            [dg.TableRecord({**vars(job), "error": job.error or "-"}) for job in run.jobs] or [dg.TableRecord({"name": "-"})]
        ),
    }
    for each in found:
        name = each.insert.table.name
        metadata |= {f"{name}: rows": each.digest.rows, f"{name}: commits": len(each.versions)}
    if wrong:
        metadata["wrong"] = "; ".join(wrong)
    return _check(not wrong, metadata)


def unavailable(error: FlinkUnavailable) -> dg.AssetCheckResult:
    """Return that Flink was not run: not passed, but later steps do not wait for it."""
    metadata = {"status": UNAVAILABLE, "missing": ", ".join(error.missing) or "-", "what to do": str(error)}
    return _check(False, metadata, dg.AssetCheckSeverity.WARN)


def _check(
    passed: bool, metadata: Mapping[str, Any], severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=asset_key(ORDERS_FLINK), check_name=CHECK, passed=passed, metadata=metadata, severity=severity
    )


def _cleared(spark: Spark, table: TableDeclaration) -> int:
    """Delete what an earlier run of this asset wrote, and return the table's version."""
    name = name_of(spark, table)
    where = f"FROM {name} WHERE {DigestPart.of(table, name, _BLOCKS[table.name]).where}"
    if spark.rows(spark.sql(f"SELECT 1 {where} LIMIT 1")):
        spark.rows(spark.sql(f"DELETE {where}"))
    return spark.catalog.version(spark.full_name(table))


def _found(spark: Spark, insert: Insert, before: int, run: FlinkRun) -> Found:
    table, block, name = insert.table, _BLOCKS[insert.table.name], name_of(spark, insert.table)
    columns = ", ".join(
        f"CAST({expression} AS {column.type}) AS {column.name}"
        for expression, column in zip(insert.columns, table.columns, strict=True)
    )
    generated = f"(SELECT {columns} FROM (SELECT id AS seq FROM range(1, {insert.rows + 1})))"
    expected, digest = by_spark(spark, [DigestPart.of(table, source, block) for source in (generated, name)])
    commits = [c for c in spark.history(spark.full_name(table)) if c.version > before and c.engine is Engine.FLINK]
    job = next((job for job in run.jobs if job.name == table.table_name), None)
    return Found(
        insert,
        expected,
        digest,
        tuple(commit.version for commit in reversed(commits)),
        job.checkpoints if job else 0,
    )

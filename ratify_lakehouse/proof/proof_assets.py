"""The steps of the cross-engine proof as assets. Each waits for all that come before it, for a run may leave some out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from ratify_lakehouse.catalog.sql_warehouse import SqlWarehouse
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.components.table_asset import TableChange, asset_key, result, table_spec
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.proof import duckdb_steps, proof_ledger, proof_lifecycle, spark_steps, streaming_step, verify_step
from ratify_lakehouse.proof.flink_step import orders_flink
from ratify_lakehouse.proof.proof_report import FAILED, PASSED, write_report
from ratify_lakehouse.proof.proof_steps import GROUP, KEYS, Step, step_key, step_spec, step_table
from ratify_lakehouse.proof.proof_tables import ORDERS_STREAM, ORDERS_SUMMARY, TABLES
from ratify_lakehouse.proof.tpch_queries import QUERY_OF_EACH_KIND, tpch_answers
from ratify_lakehouse.proof.workspace_setup import SAMPLES_SCALE_FACTOR, workspace_cleanup
from ratify_lakehouse.settings import Settings


class SetupConfig(dg.Config):
    """What to set up."""

    scale_factor: float = Field(default=0.01, gt=0, description="Of TPC-H: 1 is about 1 GB, 8.7 million rows")


class VerifyConfig(dg.Config):
    """How much to verify."""

    quick: bool = Field(
        default=False,
        description="Verify by time travel the first, the middle and the last of each table's commits that others followed, "
        f"and the queries {', '.join(map(str, QUERY_OF_EACH_KIND))} in Spark, instead of all",
    )


@dg.multi_asset(name=Step.SETUP.value, specs=[step_table(Step.SETUP, table) for table in TABLES.values()])
def setup(config: SetupConfig, spark: Spark, duckdb: DuckDB) -> Iterator[dg.MaterializeResult[Any]]:
    """Drop the tables of the schema, create TPC-H's eight again, and load them: each run starts from the same baseline."""
    workspace, scale_factor = Settings().warehouse, config.scale_factor
    with duckdb.session() as session:
        if workspace:
            entries = proof_lifecycle.clone(spark, session, SqlWarehouse(catalog=UnityCatalog(admin=True)))
            scale_factor = SAMPLES_SCALE_FACTOR
        else:
            proof_lifecycle.create_tables(spark)
            entries = proof_lifecycle.load(session, scale_factor)
        run = proof_ledger.begin(session, entries, scale_factor)
    for entry in entries:
        yield _materialized(TABLES[entry.table], [entry], run, {"scale factor": scale_factor})


@dg.multi_asset(
    name=Step.DUCKDB_READ.value, specs=[step_spec(Step.DUCKDB_READ, "DuckDB reads every table and joins two", {"duckdb"})]
)
def duckdb_read(duckdb: DuckDB) -> dg.MaterializeResult[Any]:
    """Read through DuckDB."""
    with duckdb.session() as session:
        return _stepped(Step.DUCKDB_READ, duckdb_steps.read(session))


@dg.multi_asset(
    name=Step.DUCKDB_INSERT.value,
    specs=[step_spec(Step.DUCKDB_INSERT, "DuckDB inserts into orders: values, and rows of a query", {"duckdb"})],
)
def duckdb_insert(duckdb: DuckDB) -> dg.MaterializeResult[Any]:
    """Append through DuckDB."""
    with duckdb.session() as session:
        run = proof_ledger.current(session)
        entries = duckdb_steps.insert(session, run)
        proof_ledger.record(session, run, entries)
    return _stepped(Step.DUCKDB_INSERT, _numbers(entries, run))


@dg.multi_asset(
    name=Step.SPARK_READ.value,
    specs=[step_spec(Step.SPARK_READ, "Spark reads and joins, and reads orders as they were loaded", {"spark"})],
)
def spark_read(spark: Spark, duckdb: DuckDB) -> dg.MaterializeResult[Any]:
    """Read through Spark."""
    with duckdb.session() as session:
        run = proof_ledger.current(session)
    return _stepped(Step.SPARK_READ, spark_steps.read(spark, run))


@dg.multi_asset(name=Step.SPARK_WRITE.value, specs=[step_table(Step.SPARK_WRITE, ORDERS_SUMMARY)])
def spark_write(spark: Spark, duckdb: DuckDB) -> dg.MaterializeResult[Any]:
    """Write to orders through Spark in each way that it has, and create orders_summary by CTAS."""
    with duckdb.session() as session:
        run = proof_ledger.current(session)
        entries = spark_steps.write(spark)
        proof_ledger.record(session, run, entries)
    own = [entry for entry in entries if entry.table == ORDERS_SUMMARY.name]
    return _materialized(ORDERS_SUMMARY, own, run, _numbers(entries, run))


@dg.multi_asset(
    name=Step.STREAMING.value,
    specs=[step_table(Step.STREAMING, ORDERS_STREAM)],
    check_specs=[
        dg.AssetCheckSpec(
            "each_batch_once",
            asset=asset_key(ORDERS_STREAM),
            description="Each micro-batch is one commit; no row of the stream is missing or duplicated.",
            blocking=True,
        )
    ],
)
def stream(spark: Spark, duckdb: DuckDB) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Stream into a table, stop, and resume from the checkpoint."""
    with duckdb.session() as session:
        run = proof_ledger.current(session)
        entry = streaming_step.stream(spark)
        proof_ledger.record(session, run, [entry])
    yield _materialized(ORDERS_STREAM, [entry], run, {})
    yield _check_result(asset_key(ORDERS_STREAM), "each_batch_once", streaming_step.each_batch_once(spark, entry.digest))


_VERIFIED = {
    "history_without_gaps": "Every version of every table is in its history.",
    "commits_as_recorded": "The history names for each commit the engine that committed it.",
    "engines_agree": "Spark and DuckDB read every row as it was written, by whichever engine.",
    "time_travel": "VERSION AS OF and TIMESTAMP AS OF show what each commit left.",
    "rolled_back": "After RESTORE both engines read the baseline.",
    "tpch_answers": "The 22 queries of TPC-H give the known answers in Spark and in DuckDB.",
}


@dg.multi_asset(
    name=Step.VERIFY.value,
    specs=[step_spec(Step.VERIFY, "Histories, rows, time travel, RESTORE, and the 22 queries", {"spark", "duckdb"})],
    # What is wrong has to stay to be looked at.
    check_specs=[
        dg.AssetCheckSpec(name, asset=step_key(Step.VERIFY), description=text, blocking=True)
        for name, text in _VERIFIED.items()
    ],
)
def verified(
    config: VerifyConfig, spark: Spark, duckdb: DuckDB
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Validate what the other steps have left, and roll it back."""
    with duckdb.session() as session:
        run = proof_ledger.current(session)
        history = verify_step.histories(spark)
        findings = {
            "history_without_gaps": verify_step.history_without_gaps(
                history, verify_step.latest_versions(spark.catalog, history)
            ),
            "commits_as_recorded": verify_step.commits_as_recorded(history, run.entries),
            "engines_agree": verify_step.engines_agree(spark, session, run, history),
            "time_travel": verify_step.time_travel(spark, run, history, quick=config.quick),
        }
        baseline = verify_step.roll_back(spark, run)
        proof_ledger.begin(session, baseline, run.scale_factor)
        findings["rolled_back"] = verify_step.rolled_back(spark, session, baseline)
        findings["tpch_answers"] = tpch_answers(spark, session, run.scale_factor, quick=config.quick)
    rows = verify_step.commits_by_engine(history)
    validated = [(name, PASSED if finding.passed else FAILED, finding.description) for name, finding in findings.items()]
    markdown, page = write_report(Settings().home / GROUP, history, validated)
    yield _stepped(
        Step.VERIFY,
        {
            COMMITS: dg.MetadataValue.table([dg.TableRecord(row) for row in rows]),
            "report": dg.MetadataValue.path(page),
            "report as Markdown": dg.MetadataValue.path(markdown),
        },
    )
    for name, finding in findings.items():
        yield _check_result(step_key(Step.VERIFY), name, finding)


COMMITS = "commits by engine"
"""Metadata key of verify: a row for each table."""


@dg.multi_asset(name=Step.CLEANUP.value, specs=[step_spec(Step.CLEANUP, "Drops the tables and the schema", {"spark"})])
def cleanup(spark: Spark) -> dg.MaterializeResult[Any]:
    """Leave nothing behind but the ledger."""
    if Settings().warehouse:
        workspace_cleanup(SqlWarehouse(catalog=UnityCatalog(admin=True)))
        return _stepped(Step.CLEANUP, {"schema": "dropped with all in it"})
    return _stepped(Step.CLEANUP, {"tables dropped": len(proof_lifecycle.remove(spark))})


def _stepped(step: Step, metadata: Mapping[str, Any]) -> dg.MaterializeResult[Any]:
    return dg.MaterializeResult(asset_key=step_key(step), metadata=dict(metadata))


def _numbers(entries: Sequence[proof_ledger.ProofEntry], run: proof_ledger.Run) -> dict[str, Any]:
    versions = {f"{entry.operation} to {entry.table}": entry.version for entry in entries}
    return {"run": run.id, **{f"version of {what}": version for what, version in versions.items()}}


def _materialized(
    table: TableDeclaration, entries: Sequence[proof_ledger.ProofEntry], run: proof_ledger.Run, more: Mapping[str, Any]
) -> dg.MaterializeResult[Any]:
    rows = sum(entry.digest.rows for entry in entries)
    versions = [entry.version for entry in entries]
    # Each run creates the tables again, so that its id stands for the table's.
    change = TableChange(
        version=max(versions),
        rows=rows,
        added=rows,
        versions=versions,
        rows_version=f"{run.id}.{max(versions)}",
        more={"run": run.id, **more},
    )
    return result(table, change)


def _check_result(key: dg.AssetKey, name: str, finding: Finding) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=name,
        passed=finding.passed,
        description=finding.description,
        metadata=dict(finding.numbers),
        severity=dg.AssetCheckSeverity.ERROR,
    )


steps_ledger = table_spec(proof_ledger.STEPS, [key for step in Step if step is not Step.CLEANUP for key in KEYS[step]])
"""The ledger of the proof, to which every step adds that writes."""

cross_engine_assets = [setup, duckdb_read, duckdb_insert, spark_read, spark_write, stream, orders_flink, verified, cleanup]
"""The steps, in their order."""

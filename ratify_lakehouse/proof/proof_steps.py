"""The steps of the cross-engine proof: their order, and what each of them materializes."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import dagster as dg

from ratify_lakehouse.components.table_asset import asset_key, table_spec
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.proof.proof_ledger import STEPS
from ratify_lakehouse.proof.proof_tables import ORDERS_FLINK, ORDERS_STREAM, ORDERS_SUMMARY, TABLES

GROUP = "cross_engine"


class Step(StrEnum):
    """The steps, in their order."""

    SETUP = "setup"
    DUCKDB_READ = "duckdb_read"
    DUCKDB_INSERT = "duckdb_insert"
    SPARK_READ = "spark_read"
    SPARK_WRITE = "spark_write"
    STREAMING = "streaming"
    FLINK = "flink"
    VERIFY = "verify"
    CLEANUP = "cleanup"


def step_key(step: Step) -> dg.AssetKey:
    """Return the key of a step that writes no table."""
    return dg.AssetKey([GROUP, step.value])


KEYS: Mapping[Step, Sequence[dg.AssetKey]] = {
    Step.SETUP: [asset_key(table) for table in TABLES.values()],
    Step.DUCKDB_READ: [step_key(Step.DUCKDB_READ)],
    Step.DUCKDB_INSERT: [step_key(Step.DUCKDB_INSERT)],
    Step.SPARK_READ: [step_key(Step.SPARK_READ)],
    Step.SPARK_WRITE: [asset_key(ORDERS_SUMMARY)],
    Step.STREAMING: [asset_key(ORDERS_STREAM)],
    Step.FLINK: [asset_key(ORDERS_FLINK)],
    Step.VERIFY: [step_key(Step.VERIFY)],
    Step.CLEANUP: [step_key(Step.CLEANUP)],
}
"""What each step materializes: the tables that it writes, or else itself."""


def before(step: Step) -> list[dg.AssetKey]:
    """Return the keys of all steps before a step, which are the dependencies of its assets."""
    steps = list(Step)
    return [key for earlier in steps[: steps.index(step)] for key in KEYS[earlier]]


def step_spec(step: Step, description: str, kinds: set[str]) -> dg.AssetSpec:
    """Return the spec of a step that writes no table."""
    return dg.AssetSpec(
        step_key(step),
        deps=before(step),
        description=description,
        group_name=GROUP,
        kinds=kinds,
        owners=[f"team:{STEPS.owner}"],
    )


def step_table(step: Step, declaration: TableDeclaration) -> dg.AssetSpec:
    """Return the spec of a table that a step writes."""
    return table_spec(declaration, before(step)).replace_attributes(group_name=GROUP)

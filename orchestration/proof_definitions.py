"""The code location of the cross-engine proof, apart from the tables so that "Materialize all" there leaves it out."""

from pathlib import Path

import dagster as dg

from assets.cross_engine.proof_assets import cross_engine_assets, steps_ledger
from assets.cross_engine.proof_steps import GROUP
from orchestration.code_links import with_modules, with_repository_links
from orchestration.project_resources import EXECUTOR, RESOURCES

cross_engine_proof = dg.define_asset_job(
    "cross_engine_proof",
    selection=dg.AssetSelection.groups(GROUP),
    tags={"ratify/exclusive": "cross_engine_proof"},
    description="Prove on TPC-H that every engine reads what the others wrote, and that one history names them all.",
)

defs = with_repository_links(
    with_modules(
        dg.Definitions(
            assets=[*cross_engine_assets, steps_ledger],
            jobs=[cross_engine_proof],
            resources={name: RESOURCES[name] for name in ("catalog", "spark", "duckdb", "flink")},
            executor=EXECUTOR,
        )
    ),
    Path(__file__).parent,
)

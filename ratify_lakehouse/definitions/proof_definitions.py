"""The code location of the cross-engine proof, apart from the tables so that "Materialize all" there leaves it out."""

from pathlib import Path

import dagster as dg

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.definitions.code_links import with_modules, with_repository_links
from ratify_lakehouse.definitions.side_by_side import side_by_side_executor
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.flink.flink_engine import Flink
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.proof.proof_assets import cross_engine_assets, steps_ledger
from ratify_lakehouse.proof.proof_steps import GROUP

cross_engine_proof = dg.define_asset_job(
    "cross_engine_proof",
    selection=dg.AssetSelection.groups(GROUP),
    tags={"ratify/exclusive": "cross_engine_proof"},
    description="Prove on TPC-H that every engine reads what the others wrote, and that one history names them all.",
)

_catalog = UnityCatalog()

defs = with_repository_links(
    with_modules(
        dg.Definitions(
            assets=[*cross_engine_assets, steps_ledger],
            jobs=[cross_engine_proof],
            resources={
                "catalog": _catalog,
                "spark": Spark(catalog=_catalog),
                "duckdb": DuckDB(catalog=_catalog),
                "flink": Flink(catalog=_catalog),
            },
            executor=side_by_side_executor,
        )
    ),
    Path(__file__).parent,
)

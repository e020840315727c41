"""A stack of its own for a benchmark: catalog and Spark, started before and stopped after it, in a temporary home."""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.ratios import console
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.embedded.embedded_stack import running
from ratify_lakehouse.embedded.stack_state import StackConfig
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.settings import LAYERS, Settings


@dataclass(frozen=True)
class WarmStack:
    """The resources of a stack.

    Attributes:
        home: Its folder.
        catalog: Its catalog.
        spark: Its Spark.
        server: The process of Spark's server.
    """

    home: Path
    catalog: UnityCatalog
    spark: Spark
    server: psutil.Process


@contextmanager
def warm_stack() -> Generator[WarmStack]:
    """Start a stack, and stop it after the block."""
    jars, home = Settings().jars, Path(tempfile.mkdtemp(prefix="ratify-bench-"))
    os.environ["RATIFY_HOME"] = str(home)
    try:
        with running(StackConfig(home=home, jars_dir=jars), console.print) as state:
            if state.spark is None:
                raise SystemExit("the stack has no Spark: nothing is measured")
            catalog = UnityCatalog(host=state.catalog.url, token=state.catalog.token_file.read_text().strip())
            spark = Spark(catalog=catalog, remote=state.spark.remote)
            try:
                catalog.ensure_schemas(LAYERS)
                yield WarmStack(home, catalog, spark, psutil.Process(state.spark.pid))
            finally:
                # Before the server: a client whose server has stopped retries for ten minutes.
                spark.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)

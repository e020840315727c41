"""`ratify prove`: the cross-engine proof."""

from typing import Annotated

import typer

_NO_ENGINE = "Name the engines that take part: -a (all), -s (Spark), -f (Flink), -d (DuckDB); they may be combined."


def prove(
    everything: Annotated[bool, typer.Option("-a", "--all", help="Every engine.")] = False,
    spark: Annotated[bool, typer.Option("-s", "--spark", help="Spark, batch and streaming.")] = False,
    flink: Annotated[bool, typer.Option("-f", "--flink", help="Flink.")] = False,
    duckdb: Annotated[bool, typer.Option("-d", "--duckdb", help="DuckDB.")] = False,
    no_setup: Annotated[bool, typer.Option("--no-setup", help="Use the existing tables.")] = False,
    no_cleanup: Annotated[bool, typer.Option("--no-cleanup", help="Leave the tables.")] = False,
    scale_factor: Annotated[float, typer.Option(min=0.0001, help="Of TPC-H: 1 is about 1 GB.")] = 0.01,
    quick: Annotated[
        bool, typer.Option("--quick", help="Verify three commits of a table by time travel, and 8 queries in Spark.")
    ] = False,
) -> None:
    """Prove on TPC-H that every engine reads what the others wrote, and that one history names them all."""
    engines = [name for name, wanted in (("spark", spark), ("flink", flink), ("duckdb", duckdb)) if everything or wanted]
    if not engines:
        raise typer.BadParameter(_NO_ENGINE)
    from ratify_lakehouse.cli.proof_run import run_proof

    passed = run_proof(engines, setup=not no_setup, cleanup=not no_cleanup, scale_factor=scale_factor, quick=quick)
    raise typer.Exit(0 if passed else 1)

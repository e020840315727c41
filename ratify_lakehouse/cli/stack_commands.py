"""`ratify setup`, `up`, `status` and `down`: the embedded stack."""

from typing import Annotated

import typer

from ratify_lakehouse.cli.terminal_output import Json, out, progress, runnable, show, show_json


def setup() -> None:
    """Download and compile what the embedded Spark needs, once, and Flink where it is installed."""
    from ratify_lakehouse.cli.stack_session import stack_config
    from ratify_lakehouse.embedded import flink_sink
    from ratify_lakehouse.embedded.runtime_setup import prepare
    from ratify_lakehouse.settings import Settings

    if Settings().without_spark and not flink_sink.is_installed():
        out.print("Ready: without Spark and Flink, Java is not needed.", highlight=False)
        return
    config = stack_config()
    runtime = prepare(config, progress)
    if flink_sink.is_installed():
        flink_sink.prepare(config.jars_dir, runtime.java, progress)
    out.print(f"Ready: {len(runtime.class_path)} jars, Java in {runtime.java.home}.", highlight=False)


def up(
    catalog_port: Annotated[int, typer.Option(help="Port of the catalog; 0: any free port.")] = 0,
    spark_port: Annotated[int, typer.Option(help="Port of Spark Connect; 0: any free port.")] = 0,
    kafka: Annotated[bool, typer.Option("--kafka", help="Start a Kafka broker too.")] = False,
    kafka_port: Annotated[int, typer.Option(help="Port of Kafka; 0: any free port.")] = 0,
) -> None:
    """Start the embedded catalog and Spark, and leave them running until `ratify down`."""
    from ratify_lakehouse.cli.stack_session import stack_config
    from ratify_lakehouse.embedded.embedded_stack import up as start_stack

    config = stack_config(catalog_port, spark_port, kafka=kafka, kafka_port=kafka_port)
    state = start_stack(config, detached=True, progress=progress)
    spark = state.spark.remote if state.spark else "none"
    broker = f", Kafka {state.kafka.bootstrap}" if state.kafka else ""
    out.print(f"catalog {state.catalog.url} ({state.catalog.name}), Spark {spark}{broker}", highlight=False)


def down() -> None:
    """Stop what `ratify up` started."""
    from ratify_lakehouse.embedded.embedded_stack import down as stop_stack
    from ratify_lakehouse.settings import Settings

    stopped = stop_stack(Settings().home)
    out.print("stopped" if stopped else "nothing was running")


def status(as_json: Json = False) -> None:
    """Show where the embedded stack runs; exit code 3 if it does not run."""
    from ratify_lakehouse.embedded.embedded_stack import status as stack_status
    from ratify_lakehouse.settings import Settings

    home = Settings().home
    state = stack_status(home)
    if as_json:
        show_json(state.model_dump(mode="json") if state else {})
    elif state:
        rows = [{"part": "catalog", "address": state.catalog.url, "process": state.catalog.pid or "not ours"}]
        if state.spark:
            rows.append({"part": "spark", "address": state.spark.remote, "process": state.spark.pid})
        if state.kafka:
            rows.append({"part": "kafka", "address": state.kafka.bootstrap, "process": state.kafka.pid})
        show(f"Running in {home}", rows)
    else:
        out.print(runnable(f"nothing runs in {home}; start it with `ratify up`"), highlight=False)
    raise typer.Exit(0 if state else 3)

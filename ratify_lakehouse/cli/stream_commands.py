"""`ratify stream`: the continuous mode, in the foreground or as a background process."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratify_lakehouse.cli.terminal_output import Json, out, progress, runnable, show

if TYPE_CHECKING:
    from ratify_lakehouse.definitions.continuous_state import ContinuousOptions, ContinuousState

stream_app = typer.Typer(no_args_is_help=True, help="Continuous streams from Kafka into tables, and from those into others.")

# The first start creates the tables.
_UP_S = 180
_DOWN_S = 60

Every = Annotated[float, typer.Option(min=0.1, help="Seconds from one micro-batch to the next.")]
Round = Annotated[float, typer.Option(min=1, help="Seconds from one report to Dagster to the next.")]
Port = Annotated[int, typer.Option(help="Port of the Prometheus metrics on 127.0.0.1; 0: any free port.")]
Table = Annotated[
    str, typer.Argument(help="schema.table of a KafkaEvents or FlinkSql table; by default all.", show_default=False)
]


@stream_app.command()
def run(
    table: Annotated[
        str,
        typer.Argument(help="schema.table of a KafkaEvents or FlinkSql table; by default the only one.", show_default=False),
    ] = "",
    every: Every = 10,
    round_seconds: Round = 300,
    metrics_port: Port = 0,
    options: Annotated[Path | None, typer.Option(hidden=True, help="These three as JSON, from `stream start`.")] = None,
) -> None:
    """Run the streams of a table in the foreground, until Ctrl-C or SIGTERM; the batches in progress are finished."""
    from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
    from ratify_lakehouse.cli.dagster_session import dagster_instance
    from ratify_lakehouse.components.flink.flink_table import FlinkTable
    from ratify_lakehouse.definitions.continuous_flink import ContinuousFlink
    from ratify_lakehouse.definitions.continuous_mode import ContinuousMode
    from ratify_lakehouse.definitions.continuous_state import ContinuousOptions, published_state
    from ratify_lakehouse.definitions.project_tables import continuous_tables, streams_from
    from ratify_lakehouse.definitions.stream_metrics import StreamMetrics
    from ratify_lakehouse.engines.flink.flink_engine import Flink
    from ratify_lakehouse.engines.spark.spark_engine import Spark
    from ratify_lakehouse.kafka.kafka_client import Kafka

    given = ContinuousOptions(every=every, round_seconds=round_seconds, metrics_port=metrics_port)
    if options:
        given = ContinuousOptions.model_validate_json(options.read_text())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr, force=True)
    for noisy in ("alembic", "dagster", "httpx", "py4j", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    if len(found := continuous_tables(table)) > 1:
        names = ", ".join(each.declaration.table_name for each in found)
        raise typer.BadParameter(f"A process runs the streams of one table: name one of {names}.")
    (only,) = found
    catalog, kafka, metrics, name = UnityCatalog(), Kafka(), StreamMetrics(), only.declaration.table_name
    spark = Spark(catalog=catalog)
    with dagster_instance() as instance, published_state(name, metrics.serve(given.metrics_port), given.every) as ready:
        try:
            if isinstance(only, FlinkTable):
                flink = Flink(catalog=catalog)
                ContinuousFlink(only, kafka, spark, flink, instance, given, stop, metrics, ready).run()
            else:
                streams = streams_from(only)
                ContinuousMode(kafka, spark, instance, only, streams, given, stop, metrics, ready).run()
        finally:
            spark.close()


@stream_app.command()
def start(table: Table = "", every: Every = 10, round_seconds: Round = 300, metrics_port: Port = 0) -> None:
    """Start the streams, a background process for each KafkaEvents or FlinkSql table, and wait until they run."""
    from ratify_lakehouse.definitions.continuous_state import ContinuousOptions, continuous_state
    from ratify_lakehouse.definitions.project_tables import continuous_tables

    given = ContinuousOptions(every=every, round_seconds=round_seconds, metrics_port=metrics_port)
    names = [each.declaration.table_name for each in continuous_tables(table)]
    if metrics_port and len(names) > 1:
        raise typer.BadParameter(f"Each table has a port of its own: name one of {', '.join(names)}.")
    for name in names:
        if running := continuous_state(name):
            out.print(
                f"The streams from {name} are already running, as process {running.process}.",
                highlight=False,
                soft_wrap=True,
            )
        else:
            _start(name, given)


def _start(table: str, given: "ContinuousOptions") -> None:
    from ratify_lakehouse.definitions.continuous_state import streams_folder
    from ratify_lakehouse.definitions.project_folders import project_root
    from ratify_lakehouse.embedded.embedded_errors import tail
    from ratify_lakehouse.errors import StreamFailed
    from ratify_lakehouse.settings import Settings

    options = streams_folder() / f"{table}.options.json"
    options.parent.mkdir(parents=True, exist_ok=True)
    options.write_text(given.model_dump_json())
    log = _log(table)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "ratify_lakehouse.cli", "stream", "run", table, "--options", str(options)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd=project_root(),
            env=os.environ | {"RATIFY_HOME": str(Settings().home)},
        )
    progress(f"waiting for the streams from {table} to start")
    if running := _ready(table, process):
        shown = f"The streams from {table} run as process {process.pid}; metrics: {running.metrics}; log: {log}"
        out.print(shown, highlight=False)
        return
    raise StreamFailed(f"The streams did not start. The end of their log, {log}:\n{tail(log)}")


def _ready(table: str, process: subprocess.Popen[bytes]) -> "ContinuousState | None":
    """Wait until the streams of a process have started; end it if they have not in time, or if the wait is interrupted."""
    from ratify_lakehouse.definitions.continuous_state import continuous_state

    deadline = time.monotonic() + _UP_S
    try:
        while time.monotonic() < deadline and process.poll() is None:
            if (running := continuous_state(table)) and running.process == process.pid and running.ready:
                return running
            time.sleep(0.1)
    except KeyboardInterrupt:
        process.terminate()
        raise
    process.terminate()
    try:
        process.wait(_DOWN_S)
    except subprocess.TimeoutExpired:
        process.kill()
    return None


@stream_app.command()
def stop(table: Table = "") -> None:
    """Stop the streams when the batches in progress are finished."""
    found = _running(table)
    if not found:
        out.print("no streams were running", highlight=False)
        return
    for running in found:
        os.kill(running.process, signal.SIGTERM)
    progress("finishing the batches in progress")
    deadline = time.monotonic() + _DOWN_S
    for running in found:
        _await_end(running, deadline)
    out.print("stopped", highlight=False)


def _await_end(running: "ContinuousState", deadline: float) -> None:
    from ratify_lakehouse.definitions.continuous_state import continuous_state
    from ratify_lakehouse.errors import StreamFailed

    while continuous_state(running.table):
        if time.monotonic() > deadline:
            os.kill(running.process, signal.SIGKILL)
            raise StreamFailed(
                f"Process {running.process} did not end within {_DOWN_S} s and was killed; no data is lost. "
                f"Its log: {_log(running.table)}"
            )
        time.sleep(0.1)


@stream_app.command()
def status(table: Table = "", as_json: Json = False) -> None:
    """Show which streams run, and their progress; exit code 3 if none runs."""
    found = _running(table)
    if not found:
        out.print(runnable("no streams run; start them with `ratify stream start`"), highlight=False)
        raise typer.Exit(3)
    processes = (
        f"{each.table} since {each.since:%Y-%m-%d %H:%M:%S} UTC, process {each.process}, metrics {each.metrics}"
        for each in found
    )
    rows = [row for each in found for row in _numbers(each.metrics)]
    show(f"Streams from {'; '.join(processes)}", rows, as_json=as_json)


def _running(table: str) -> "list[ContinuousState]":
    """The processes that run streams: the one of a table, or all."""
    from ratify_lakehouse.definitions.continuous_state import running_streams

    return [state for state in running_streams() if table in ("", state.table)]


def _log(table: str) -> Path:
    from ratify_lakehouse.settings import Settings

    return Settings().home / "logs" / f"stream-{table}.log"


_SHOWN = {
    "ratify_stream_rows_total": "rows read",
    "ratify_stream_batches_total": "batches",
    "ratify_stream_input_rows_per_second": "rows/s in",
    "ratify_stream_processed_rows_per_second": "rows/s processed",
    "ratify_stream_offsets_behind": "offsets behind",
    "ratify_stream_bytes_outstanding": "bytes outstanding",
}


def _numbers(url: str) -> list[dict[str, Any]]:
    """Return the numbers of each stream, from its metrics."""
    import requests
    from prometheus_client.parser import text_string_to_metric_families

    response = requests.get(url, timeout=5)
    response.raise_for_status()
    rows = dict[str, dict[str, Any]]()
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            if column := _SHOWN.get(sample.name):
                table = sample.labels["table"]
                row = rows.setdefault(table, {"stream into": table, **dict.fromkeys(_SHOWN.values(), "")})
                row[column] = int(sample.value)
    return list(rows.values())

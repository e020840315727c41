"""`ratify stream`: the continuous mode, in the foreground or as a process of its own."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from prometheus_client.parser import text_string_to_metric_families

from embedded.embedded_errors import tail
from ingest.records.record_source import SourceOptions
from orchestration import continuous_mode
from orchestration.cli import cli_session
from resources.catalog.unity_catalog import UnityCatalog
from resources.errors import StreamFailed
from resources.kafka.kafka_client import Kafka
from resources.settings import Settings
from resources.spark.spark_engine import Spark

stream_app = typer.Typer(no_args_is_help=True, help="The streams from Kafka to silver, without an end.")

_UP_S = 60
_DOWN_S = 60
_PACKAGE_ROOT = Path(__file__).parents[2]

Every = Annotated[float, typer.Option(min=0.1, help="Seconds from one micro-batch to the next.")]
Round = Annotated[float, typer.Option(min=1, help="Seconds after which Dagster is told what was done, again and again.")]
Port = Annotated[int, typer.Option(help="Port of the Prometheus metrics on 127.0.0.1; 0: any that is free.")]


@stream_app.command()
def run(every: Every = 10, round_seconds: Round = 300, metrics_port: Port = 0) -> None:
    """Run the streams in the foreground, until Ctrl-C or SIGTERM; the batches that are being made are finished."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr, force=True)
    for noisy in ("alembic", "dagster", "httpx", "py4j", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    catalog = UnityCatalog()
    spark = Spark(catalog=catalog)
    with cli_session.dagster_instance() as instance:
        streams = continuous_mode.ContinuousMode(
            Kafka(), spark, instance, SourceOptions(), every, round_seconds, stop, continuous_mode.StreamMetrics()
        )
        with continuous_mode.stated(streams.serve_metrics(metrics_port), every):
            try:
                streams.run()
            finally:
                spark.close()


@stream_app.command()
def start(every: Every = 10, round_seconds: Round = 300, metrics_port: Port = 0) -> None:
    """Start the streams as a process that outlives this one; `ratify stream stop` ends it."""
    if running := continuous_mode.state():
        cli_session.out.print(f"The streams run already, as process {running.process}.", highlight=False)
        return
    log = _log()
    log.parent.mkdir(parents=True, exist_ok=True)
    options = {"--every": every, "--round-seconds": round_seconds, "--metrics-port": metrics_port}
    command = [sys.executable, "-m", "orchestration.cli", "stream", "run"]
    environment = os.environ | {"RATIFY_HOME": str(Settings().home)}
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, *(str(word) for option in options.items() for word in option)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd=_PACKAGE_ROOT,
            env=environment,
        )
    deadline = time.monotonic() + _UP_S
    while time.monotonic() < deadline and process.poll() is None:
        if (running := continuous_mode.state()) and running.process == process.pid:
            cli_session.out.print(
                f"The streams run as process {process.pid}; metrics: {running.metrics}; log: {log}", highlight=False
            )
            return
        time.sleep(0.1)
    process.terminate()
    raise StreamFailed(f"The streams did not start. They said ({log}):\n{tail(log)}")


@stream_app.command()
def stop() -> None:
    """Stop the streams, when the batches that are being made are finished."""
    running = continuous_mode.state()
    if running is None:
        cli_session.out.print("no streams were running", highlight=False)
        return
    os.kill(running.process, signal.SIGTERM)
    cli_session.progress("finishing the batches that are being made")
    deadline = time.monotonic() + _DOWN_S
    while continuous_mode.state():
        if time.monotonic() > deadline:
            os.kill(running.process, signal.SIGKILL)
            raise StreamFailed(
                f"Process {running.process} did not end within {_DOWN_S} s and was killed; nothing is lost by that. "
                f"Its log: {_log()}"
            )
        time.sleep(0.1)
    cli_session.out.print("stopped", highlight=False)


@stream_app.command()
def status(as_json: cli_session.Json = False) -> None:
    """Say whether the streams run, and how far they are; exit code 3 if they do not."""
    running = continuous_mode.state()
    if running is None:
        cli_session.out.print("no streams run; start them with `ratify stream start`", highlight=False)
        raise typer.Exit(3)
    cli_session.show(
        f"Streams since {running.since:%Y-%m-%d %H:%M:%S} UTC, process {running.process}, metrics {running.metrics}",
        _numbers(running.metrics),
        as_json=as_json,
    )


def _log() -> Path:
    return Settings().home / "logs" / "stream.log"


_SHOWN = {
    "ratify_stream_rows_total": "rows read",
    "ratify_stream_batches_total": "batches",
    "ratify_stream_input_rows_per_second": "rows/s in",
    "ratify_stream_processed_rows_per_second": "rows/s processed",
    "ratify_stream_offsets_behind": "offsets behind",
    "ratify_stream_bytes_outstanding": "bytes outstanding",
}


def _numbers(url: str) -> list[dict[str, Any]]:
    """The numbers of each stream, as its metrics tell them."""
    import requests

    response = requests.get(url, timeout=5)
    response.raise_for_status()
    rows = dict[str, dict[str, Any]]()
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            if column := _SHOWN.get(sample.name):
                table = sample.labels["table"]
                rows.setdefault(table, {"stream into": table, **dict.fromkeys(_SHOWN.values(), "")})[column] = int(
                    sample.value
                )
    return list(rows.values())

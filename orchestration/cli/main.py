"""The command line: `ratify --help`."""

from typing import Annotated, Any, Literal

import typer
from rich.markup import escape
from typer.core import TyperGroup

from embedded.embedded_errors import EmbeddedError
from embedded.embedded_stack import down as stop_stack
from embedded.embedded_stack import status as stack_status
from embedded.embedded_stack import up as start_stack
from orchestration.cli import access_commands, cli_session
from orchestration.cli.catalog_commands import catalog_app
from orchestration.cli.demo_command import run_demo
from orchestration.cli.demo_streaming_command import run_streaming_demo
from orchestration.cli.dev_command import run_dev
from orchestration.cli.hook_command import hook
from orchestration.cli.ingest_command import ingest
from orchestration.cli.prove_command import prove
from orchestration.cli.repair_command import repair
from orchestration.cli.replay_command import replay
from orchestration.cli.sample_flights import land_days
from orchestration.cli.simulate_command import simulate_app
from orchestration.cli.stream_commands import stream_app
from resources.delta.commit_history import Commit
from resources.errors import QueryFailed, RatifyError
from resources.settings import Settings


class _Group(TyperGroup):
    """Shows errors that were raised on purpose as a sentence, not as a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (RatifyError, EmbeddedError) as error:
            cli_session.err.print(f"[red]{type(error).__name__}:[/red] {escape(str(error))}", highlight=False)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    help="A lakehouse on several engines, every commit ratified by Unity Catalog.",
)

app.add_typer(access_commands.principal_app, name="principal")
app.add_typer(catalog_app, name="catalog")
app.add_typer(simulate_app, name="simulate")
app.add_typer(stream_app, name="stream")
for command in (access_commands.grant, access_commands.revoke, access_commands.grants, ingest, repair, replay, hook, prove):
    app.command()(command)


@app.command()
def demo(
    days: Annotated[int, typer.Option(min=1, help="Days to have landed at first; those of an earlier demo count.")] = 60,
    more: Annotated[int, typer.Option(min=0, help="Days to land after that.")] = 5,
    streaming: Annotated[
        bool, typer.Option("--streaming", help="Live events through Kafka, in place of landed files.")
    ] = False,
    events: Annotated[int, typer.Option(min=1, help="With --streaming: events to send, twice.")] = 200_000,
) -> None:
    """Land real flights, let the sensor find them, run bronze to gold, and show what happened; or do so with live events."""
    with cli_session.stack_for_this_process(kafka=streaming):
        passed = run_streaming_demo(events) if streaming else run_demo(days, more)
    raise typer.Exit(0 if passed else 1)


@app.command()
def dev(
    port: Annotated[int, typer.Option(help="Port of the Dagster UI.")] = 3000,
    kafka: Annotated[bool, typer.Option("--kafka", help="A Kafka broker too.")] = False,
) -> None:
    """Run the embedded stack and the Dagster UI on 127.0.0.1, until Ctrl-C."""
    raise typer.Exit(run_dev(port, kafka=kafka))


@app.command()
def setup() -> None:
    """Download and compile what the embedded Spark needs, once."""
    from embedded.runtime_setup import prepare

    runtime = prepare(cli_session.stack_config(), cli_session.progress)
    cli_session.out.print(f"Ready: {len(runtime.class_path)} jars, Java in {runtime.java.home}.", highlight=False)


@app.command()
def up(
    catalog_port: Annotated[int, typer.Option(help="Port of the catalog; 0: any that is free.")] = 0,
    spark_port: Annotated[int, typer.Option(help="Port of Spark Connect; 0: any that is free.")] = 0,
    kafka: Annotated[bool, typer.Option("--kafka", help="A Kafka broker too.")] = False,
    kafka_port: Annotated[int, typer.Option(help="Port of Kafka; 0: any that is free.")] = 0,
) -> None:
    """Start the embedded catalog and Spark, and leave them running until `ratify down`."""
    config = cli_session.stack_config(catalog_port, spark_port, kafka=kafka, kafka_port=kafka_port)
    state = start_stack(config, detached=True, progress=cli_session.progress)
    spark = state.spark.remote if state.spark else "none"
    broker = f", Kafka {state.kafka.bootstrap}" if state.kafka else ""
    cli_session.out.print(f"catalog {state.catalog.url} ({state.catalog.name}), Spark {spark}{broker}", highlight=False)


@app.command()
def down() -> None:
    """Stop what `ratify up` started."""
    stopped = stop_stack(Settings().home)
    cli_session.out.print("stopped" if stopped else "nothing was running")


@app.command()
def status(as_json: cli_session.Json = False) -> None:
    """Say whether the embedded stack runs, and where; exit code 3 if it does not."""
    state = stack_status(Settings().home)
    if as_json:
        cli_session.out.print_json(state.model_dump_json() if state else "{}")
    elif state:
        rows = [{"part": "catalog", "address": state.catalog.url, "process": state.catalog.pid or "not ours"}]
        if state.spark:
            rows.append({"part": "spark", "address": state.spark.remote, "process": state.spark.pid})
        if state.kafka:
            rows.append({"part": "kafka", "address": state.kafka.bootstrap, "process": state.kafka.pid})
        cli_session.show(f"Running in {Settings().home}", rows)
    else:
        cli_session.out.print(f"nothing runs in {Settings().home}; start it with `ratify up`", highlight=False)
    raise typer.Exit(0 if state else 3)


@app.command()
def land(
    days: Annotated[int, typer.Argument(min=1, help="How many days.")] = 1,
    as_json: cli_session.Json = False,
) -> None:
    """Put the next days of real flights into the landing zone."""
    written = land_days(Settings().landing, days)
    cli_session.show(
        f"Landed in {Settings().landing}", [{"file": path, "rows": rows} for path, rows in written], as_json=as_json
    )


@app.command()
def history(
    table: Annotated[str, typer.Argument(help="schema.table, or catalog.schema.table.")],
    limit: Annotated[int, typer.Option(min=1, help="Newest versions to show.")] = 50,
    as_json: cli_session.Json = False,
) -> None:
    """Show a table's commits, engine by engine."""
    with cli_session.engines() as engines:
        full_name = engines.full_name(table)
        commits = engines.spark.history(full_name, limit)
    cli_session.show(f"History of {full_name}", [_shown(commit) for commit in commits], as_json=as_json)


def _shown(commit: Commit) -> dict[str, Any]:
    return {
        "version": commit.version,
        "committed at (UTC)": f"{commit.timestamp:%Y-%m-%d %H:%M:%S}",
        "engine": commit.engine.value,
        "operation": commit.operation,
        "rows added": "not said" if commit.rows_added is None else commit.rows_added,
        "engine info": commit.engine_info,
    }


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="One statement. DuckDB knows the catalog as `uc`.")],
    engine: Annotated[Literal["spark", "duckdb"], typer.Option(help="Which engine runs it.")] = "spark",
    as_json: cli_session.Json = False,
) -> None:
    """Run SQL through either engine."""
    import duckdb
    from pyspark.errors import PySparkException

    with cli_session.engines() as engines:
        try:
            if engine == "spark":
                rows = engines.spark.rows(engines.spark.sql(query))
            else:
                with engines.duckdb.session() as opened:
                    rows = opened.records(query)
        except (PySparkException, duckdb.Error) as error:
            # Where the server's Java was says nothing of the query.
            raise QueryFailed(str(error).partition("JVM stacktrace")[0].strip()) from error
    cli_session.show(f"{len(rows)} rows", rows, as_json=as_json)

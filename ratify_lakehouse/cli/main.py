"""The command line: `ratify --help`.

Modules of commands import only what their options need; a command imports Dagster, engines and clients when it runs. Help,
version and status therefore start at once.
"""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ratify_lakehouse.cli.accept_command import accept
from ratify_lakehouse.cli.access_commands import grant, grants, principal_app, revoke
from ratify_lakehouse.cli.acknowledge_command import acknowledge
from ratify_lakehouse.cli.catalog_commands import catalog_app
from ratify_lakehouse.cli.changes_command import changes
from ratify_lakehouse.cli.clean_command import clean
from ratify_lakehouse.cli.demo_command import demo
from ratify_lakehouse.cli.dev_command import dev
from ratify_lakehouse.cli.drift_command import drift
from ratify_lakehouse.cli.erase_command import erase
from ratify_lakehouse.cli.history_command import history
from ratify_lakehouse.cli.hook_command import hook
from ratify_lakehouse.cli.ingest_command import ingest
from ratify_lakehouse.cli.land_command import land
from ratify_lakehouse.cli.layout_command import layout
from ratify_lakehouse.cli.lineage_command import lineage
from ratify_lakehouse.cli.maintain_command import maintain
from ratify_lakehouse.cli.new_command import new_app
from ratify_lakehouse.cli.plan_command import plan
from ratify_lakehouse.cli.prove_command import prove
from ratify_lakehouse.cli.repair_command import repair
from ratify_lakehouse.cli.replay_command import replay
from ratify_lakehouse.cli.reprocess_command import reprocess
from ratify_lakehouse.cli.restore_command import restore
from ratify_lakehouse.cli.rewrite_commands import delete, replace
from ratify_lakehouse.cli.run_commands import check, run
from ratify_lakehouse.cli.simulate_command import simulate_app
from ratify_lakehouse.cli.sql_command import sql
from ratify_lakehouse.cli.stack_commands import down, setup, status, up
from ratify_lakehouse.cli.stream_commands import stream_app
from ratify_lakehouse.cli.sync_commands import sync_app
from ratify_lakehouse.cli.terminal_output import err, out, styled
from ratify_lakehouse.cli.undrop_commands import purge, undrop
from ratify_lakehouse.distribution import DISTRIBUTION, distribution_version
from ratify_lakehouse.embedded.embedded_errors import EmbeddedError
from ratify_lakehouse.engine_errors import engine_of, engine_sentence
from ratify_lakehouse.errors import RatifyError

COMMANDS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Start": {"demo": demo, "dev": dev, "up": up, "status": status, "down": down, "setup": setup, "new": new_app},
    "Data": {
        "run": run,
        "check": check,
        "sql": sql,
        "history": history,
        "changes": changes,
        "lineage": lineage,
        "plan": plan,
        "ingest": ingest,
        "accept": accept,
        "reprocess": reprocess,
        "sync": sync_app,
        "land": land,
        "hook": hook,
    },
    "Streams": {"stream": stream_app, "simulate": simulate_app, "replay": replay},
    "Access and catalog": {
        "grant": grant,
        "revoke": revoke,
        "grants": grants,
        "principal": principal_app,
        "catalog": catalog_app,
    },
    "Proof and repair": {
        "prove": prove,
        "maintain": maintain,
        "drift": drift,
        "layout": layout,
        "repair": repair,
        "restore": restore,
        "delete": delete,
        "replace": replace,
        "undrop": undrop,
        "purge": purge,
        "erase": erase,
        "clean": clean,
        "acknowledge": acknowledge,
    },
}
"""Commands by name, in the panels and in the order of `ratify --help`: the common ones first."""


class CommandGroup(TyperGroup):
    """The top of the command line: shows errors that were raised on purpose, and those of engines, as a sentence."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of `COMMANDS`; Typer would put groups last."""
        return [name for commands in COMMANDS.values() for name in commands]

    def invoke(self, ctx: Any) -> Any:
        """Run the command; exit code 1 after an error."""
        try:
            return super().invoke(ctx)
        except (RatifyError, EmbeddedError) as error:
            err.print(styled(f"{type(error).__name__}:", "red", f" {error}"), soft_wrap=True)
            raise typer.Exit(1) from error
        except Exception as error:
            if not (engine := engine_of(error)):
                raise
            err.print(styled(f"{engine}:", "red", f" {engine_sentence(error)}"), soft_wrap=True)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="A lakehouse on several engines, every commit ratified by Unity Catalog.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"{DISTRIBUTION} {distribution_version()}", highlight=False)
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the command line itself."""


for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(command)

"""`ratify catalog export`: the catalog as SQL, to move to another server."""

from pathlib import Path
from typing import Annotated

import typer

from ratify_lakehouse.catalog.catalog_export import Export, ExportPart
from ratify_lakehouse.cli.terminal_output import out
from ratify_lakehouse.errors import TerminalError
from ratify_lakehouse.wording import counted

catalog_app = typer.Typer(no_args_is_help=True, help="The catalog as a whole.")


class NotANamePair(TerminalError):
    """A principal's two names are not written as OLD=NEW."""


@catalog_app.callback()
def _group() -> None:
    """Typer needs a callback to make a group of a single command."""


@catalog_app.command("export")
def export(
    name: Annotated[str | None, typer.Option("--as", help="Name of the catalog on the other server.")] = None,
    only: Annotated[list[ExportPart] | None, typer.Option(help="A part; may be repeated. All parts by default.")] = None,
    principal: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="A principal's name on the other server; may be repeated.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="File to write; stdout by default.")] = None,
) -> None:
    """Write the catalog's tables (DDL), owners and grants as SQL. docs/catalog.md explains how to run it elsewhere."""
    from ratify_lakehouse.catalog.unity_catalog import UnityCatalog

    source = UnityCatalog(admin=True)
    exported = Export(source, name or source.connection.name, dict(_pair(text) for text in principal or []))
    statements = list(exported.statements(only or tuple(ExportPart)))
    text = "".join(statement + ("\n\n" if statement.startswith("--") else ";\n\n") for statement in statements)
    if output is None:
        out.print(text, end="", highlight=False, soft_wrap=True)
        return
    output.write_text(text, encoding="utf-8")
    out.print(f"{counted(len(statements), 'statement')} in {output}", highlight=False, soft_wrap=True)


def _pair(text: str) -> tuple[str, str]:
    old, separator, new = text.partition("=")
    if not (old and separator and new):
        raise NotANamePair(f"--principal {text!r} is not of the form OLD=NEW, as in etl=1f6c0d2e-….")
    return old, new

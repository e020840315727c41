"""Declares a table of landed files from the files themselves: `ratify ingest` for a table that nobody has declared."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any

import duckdb
import yaml

from ratify_lakehouse.components.landed_files_component import CsvOptions, LandedFiles
from ratify_lakehouse.declarations import IDENTIFIER
from ratify_lakehouse.definitions import project_tables
from ratify_lakehouse.durable_files import write_durably
from ratify_lakehouse.errors import BadFile, TerminalError, UnsafeDeclaration
from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.ingest.formats.isolated_parsing import infer
from ratify_lakehouse.landing.landing_zone import LandedFile
from ratify_lakehouse.landing.named_files import NamedFiles
from ratify_lakehouse.scratch_folders import scratch_folder
from ratify_lakehouse.settings import Settings
from ratify_lakehouse.sql.duckdb_sql import literal

_COMPRESSED = (".gz", ".zst")
_DELIMITERS = ";\t|"


class CannotDeclare(TerminalError):
    """No declaration can be written for a table."""


def declared_from(table: str, files: Sequence[LandedFile]) -> tuple[Source, Path]:
    """Write the declaration of a table of landed files, and return its source and the file of the declaration.

    Its columns are inferred when the table is created. The delimiter of CSV files is that of the first file.

    Args:
        table: `schema.table`.
        files: Files of the table.

    Raises:
        CannotDeclare: the name is no table's, it is declared as something else, or the first file cannot be read.
    """
    schema, _, name = table.partition(".")
    if not (IDENTIFIER.fullmatch(schema) and IDENTIFIER.fullmatch(name)):
        raise CannotDeclare(f"{table!r} is not a table name: write its schema and name, such as bronze.orders.")
    declaration = project_tables.folder() / schema / name / "defs.yaml"
    if declaration.exists():
        raise CannotDeclare(f"{table} is declared in {declaration}, but not as a table of landed files.")
    if not files:
        raise CannotDeclare(f"{table} is not declared, and there is no file to declare it from.")
    path = files[0].path
    description = f"Rows of files such as {PurePosixPath(path).name}, as they came"
    pattern = f"{name}/*{_suffix(path)}"
    content: dict[str, Any] = {"description": description, "pattern": pattern}
    with scratch_folder(Settings().home) as folder, closing(duckdb.connect()) as con:
        local = NamedFiles().fetch(path, folder).local
        delimiter = _delimiter(con, local)
        if delimiter != ",":
            content["csv"] = {"delimiter": delimiter}
        component = LandedFiles(description=description, pattern=pattern, csv=CsvOptions(delimiter=delimiter))
        component.place(declaration.parent)
        try:
            source = component.source
            infer(con, source, path, local)
        except (BadFile, UnsafeDeclaration) as error:
            reason = error.reason if isinstance(error, BadFile) else str(error)
            raise CannotDeclare(
                f"{table} is not declared, and cannot be declared from {path}: {reason.rstrip('.')}. Write {declaration} "
                "by hand (docs/own-tables.md), or name another file first."
            ) from error
    declared = {"type": "ratify_lakehouse.LandedFiles", "attributes": content}
    write_durably(declaration, yaml.safe_dump(declared, sort_keys=False, allow_unicode=True, width=120).encode(), 0o644)
    project_tables.declared_tables.cache_clear()
    return source, declaration


def _suffix(path: str) -> str:
    suffixes = PurePosixPath(path).suffixes
    return "".join(suffixes[-2:] if suffixes and suffixes[-1].lower() in _COMPRESSED else suffixes[-1:])


def _delimiter(con: "duckdb.DuckDBPyConnection", local: Path) -> str:
    """The delimiter of a CSV file, as DuckDB finds it; a comma where it finds none, as in files of other formats."""
    try:
        found = con.execute(f"SELECT Delimiter FROM sniff_csv({literal(str(local))})").fetchone()
    except duckdb.Error:
        return ","
    return found[0] if found and found[0] in _DELIMITERS else ","

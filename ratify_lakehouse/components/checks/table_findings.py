"""Findings about a table as it is now: its files in storage, and its columns, comments and properties as declared."""

from collections.abc import Sequence

from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.declaration_drift import Aspect, Difference, differences
from ratify_lakehouse.delta.snapshot import LiveFile, Snapshot

_SHOWN = 5
_OF_COLUMNS = {Aspect.MISSING, Aspect.EXTRA, Aspect.TYPE}


def files_present(table: str, files: Sequence[LiveFile], missing: Sequence[LiveFile]) -> Finding:
    """Check that every file of a table's snapshot exists in storage.

    Args:
        table: As an argument of `ratify repair`.
        files: All files of the snapshot.
        missing: Those that are not in storage.
    """
    numbers = {"files": len(files), "missing": len(missing)}
    if not missing:
        return Finding(True, "Every file is in storage.", numbers)
    paths = ", ".join(file.path for file in missing[:_SHOWN])
    repair = f"ratify repair {table}"
    return Finding(
        False,
        f"Files are missing, and no engine can read the table: {paths}. `{repair} --dry-run` shows what is lost.",
        {**numbers, "missing files": paths, "repair": repair},
    )


def columns_as_declared(declaration: TableDeclaration, snapshot: Snapshot) -> Finding:
    """Check that a table has the declared columns, of the declared types, whatever their order."""
    found = [each for each in differences(snapshot, declaration) if each.aspect in _OF_COLUMNS]
    return _as_declared(declaration, found, "The columns are as declared.", "columns that differ")


def rest_as_declared(declaration: TableDeclaration, snapshot: Snapshot) -> Finding:
    """Check that a table has all else that is declared: comments, properties, NULL in columns, and its layout."""
    found = [each for each in differences(snapshot, declaration) if each.aspect not in _OF_COLUMNS]
    return _as_declared(declaration, found, "Comments and properties are as declared.", "differences")


def _as_declared(declaration: TableDeclaration, found: Sequence[Difference], right: str, counted: str) -> Finding:
    numbers = {counted: len(found), **{f"{each.aspect} {each.name}".rstrip(): _shown(each) for each in found}}
    if not found:
        return Finding(True, right, numbers)
    text = f"{'; '.join(map(str, found))}. `ratify drift {declaration.table_name}` says what to do."
    return Finding(False, f"It is not as declared: {text}", numbers)


def _shown(difference: Difference) -> str:
    return f"declared {difference.declared}, actual {difference.actual}. {difference.next_step}"

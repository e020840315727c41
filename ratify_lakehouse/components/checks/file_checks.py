"""The check of a table's data files in storage."""

from collections.abc import Sequence

from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.delta.snapshot import LiveFile

_SHOWN = 5


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

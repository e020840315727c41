"""What the page of a table shows of a pass: its strategy, what it read, and numbers that Dagster plots."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from ratify_lakehouse.delta.computed_inputs import ComputedInputs, InputVersion

_COLUMNS = ("input", "from version", "to version", "rows changed")


def pass_metadata(
    read: Mapping[str, InputVersion], last: ComputedInputs | None, why_full: str, changed: Mapping[str, int] | None
) -> Mapping[str, Any]:
    """Return the metadata of a pass.

    Args:
        read: The versions of the inputs that it read, by full name.
        last: Those that the table was computed from before; None if that is not known.
        why_full: Why all rows were computed; empty where only those of affected keys were.
        changed: By input, how many rows the versions in between changed: each as it was and as it is. None if not counted.
    """
    rows = [
        dg.TableRecord(
            {
                "input": name,
                "from version": before.version if last and (before := last.inputs.get(name)) else None,
                "to version": version.version if version.version >= 0 else None,
                "rows changed": None if changed is None else changed.get(name, 0),
            }
        )
        for name, version in read.items()
    ]
    schema = dg.TableSchema([dg.TableColumn(name, "string" if name == "input" else "int") for name in _COLUMNS])
    return {
        "strategy": "full" if why_full else "incremental",
        **({"computed in full because": why_full} if why_full else {}),
        **({} if changed is None else {"rows changed in inputs": sum(changed.values())}),
        "inputs read": dg.MetadataValue.table(rows, schema),
    }

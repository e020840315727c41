"""What the next pass over a table would do, said before anything is computed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ratify_lakehouse.delta.computed_inputs import ComputedInputs


@dataclass(frozen=True)
class PassPlan:
    """What a pass would do.

    Attributes:
        computes: "all rows", "changed rows", "new rows" (of the strategies append and snapshot), "rows of redelivered
            files, if any" where only the ledger has another version, or "nothing".
        why: Why all rows are computed, or what else is to be known of the pass; otherwise empty.
        inputs: By name, from which version of it the pass reads to which; from None where that is not known.
    """

    computes: str
    why: str = ""
    inputs: Mapping[str, tuple[int | None, int]] = field(default_factory=dict[str, tuple[int | None, int]])

    @classmethod
    def of(cls, now: ComputedInputs, last: ComputedInputs | None, why: str = "") -> "PassPlan":
        """Return the plan of a pass that would make a record.

        Args:
            now: The record.
            last: The one that the table has; None where it is not known to be as one says.
            why: Why all rows are computed, if they are.
        """
        known = last.inputs if last else {}
        inputs = {name: (known[name].version if name in known else None, to.version) for name, to in now.inputs.items()}
        if why:
            return cls("all rows", why, inputs)
        if last is None or any((to.table_id, to.version) != _read(last, name) for name, to in now.inputs.items()):
            return cls("changed rows", "", inputs)
        return cls("nothing" if last.inputs == now.inputs else "rows of redelivered files, if any", "", inputs)


def _read(record: ComputedInputs, name: str) -> tuple[str, int] | None:
    """The table, by its id, and the version of it that a record names as an input."""
    found = record.inputs.get(name)
    return found and (found.table_id, found.version)

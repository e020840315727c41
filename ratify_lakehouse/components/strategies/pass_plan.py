"""What the next pass over a table would do, said before anything is computed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ratify_lakehouse.delta.computed_inputs import ComputedInputs


@dataclass(frozen=True)
class PassPlan:
    """What a pass would do.

    Attributes:
        computes: "all rows", "changed rows", "new rows" (of the strategies append and snapshot), or "nothing".
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
        moved = last is None or last.inputs != now.inputs
        return cls("all rows" if why else "changed rows" if moved else "nothing", why, inputs)

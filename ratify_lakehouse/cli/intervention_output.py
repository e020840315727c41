"""How commands that change rows by hand print what the change means for the project."""

from typing import TYPE_CHECKING, Any

from ratify_lakehouse.cli.terminal_output import out, show

if TYPE_CHECKING:
    from ratify_lakehouse.definitions.interventions import Consequences


def effects(means: "Consequences") -> dict[str, Any]:
    """Return what a change means, for JSON."""
    return {"its next run": means.own, "readers": dict(means.readers), "run next": list(means.downstream)}


def print_consequences(means: "Consequences") -> None:
    """Print what a change means."""
    if means.own:
        out.print(f"The table itself: {means.own}.", highlight=False, soft_wrap=True)
    if means.readers:
        rows = [{"reader": name, "what it does": effect} for name, effect in means.readers.items()]
        show("What reads it", rows)
    if means.downstream:
        out.print(f"Run next: {', '.join(means.downstream)}.", highlight=False, soft_wrap=True)

"""What benchmarks share: the console, the timing of work, and the check of ratios against their aims."""

import statistics
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

console = Console(width=120)

UNCOUNTED = 2
"""Rounds before those that count, in which JVMs and caches warm up."""


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that the work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def paired(sides: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the ratios of rounds; what disturbs a round disturbs both of its sides."""
    return statistics.median(side / other for side, other in zip(sides, others, strict=True))


def within_bounds(ratios: Sequence[tuple[str, float, float | None, bool]]) -> bool:
    """Print each ratio with its aim, and return whether all aims are met.

    Args:
        ratios: Name, ratio, aim (None: no aim, only shown), and whether the aim is a minimum rather than a maximum.
    """
    table = Table(title="Ratios", title_justify="left", header_style="bold")
    for column in ("", "ratio", "aim", ""):
        table.add_column(column)
    met = True
    for name, ratio, aim, at_least in ratios:
        if aim is None:
            table.add_row(name, f"{ratio:.2f}", "", "")
            continue
        good = ratio >= aim if at_least else ratio <= aim
        met = met and good
        table.add_row(name, f"{ratio:.2f}", f"{'≥' if at_least else '≤'} {aim:g}", "met" if good else "[red]missed[/red]")
    console.print(table)
    return met

"""From which columns of which tables the columns of a table are computed, over all levels up to bronze."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import dagster as dg

COLUMN_LINEAGE = "dagster/column_lineage"

Node = tuple[dg.AssetKey, str]
"""A column of a table."""


@dataclass(frozen=True)
class LineageGraph:
    """The columns that a table is computed from.

    Attributes:
        table: The table.
        columns: Those of each table, the table's own first; of other tables only the ones that it is computed from.
        edges: Each from a column to one that is computed from it.
        levels: How many tables away from the table each of the tables is at most.
        left_out: How many columns of the table are not in the graph, because it has so many.
    """

    table: dg.AssetKey
    columns: Mapping[dg.AssetKey, Sequence[str]]
    edges: Sequence[tuple[Node, Node]]
    levels: Mapping[dg.AssetKey, int]
    left_out: int = 0


def lineage_graph(
    table: dg.AssetKey,
    columns: Sequence[str],
    lineage_of: Callable[[dg.AssetKey], dg.TableColumnLineage | None],
    most: int | None = None,
) -> LineageGraph:
    """Return the graph of a table.

    Args:
        table: The table.
        columns: Its columns.
        lineage_of: The lineage of a table's columns, if it is known.
        most: How many of its columns the graph has; all without it.
    """
    known = cache(lineage_of)
    found: dict[dg.AssetKey, dict[str, None]] = {table: dict.fromkeys(columns[:most])}
    edges = dict[tuple[Node, Node], None]()
    waiting = [(table, column) for column in found[table]]
    # It grows while it is walked: columns in the order in which those that are computed from them stand.
    for column in waiting:
        lineage = known(column[0])
        for dep in (lineage.deps_by_column if lineage else {}).get(column[1], ()):
            source = (dep.asset_key, dep.column_name)
            edges[source, column] = None
            if dep.column_name not in found.setdefault(dep.asset_key, {}):
                found[dep.asset_key][dep.column_name] = None
                waiting.append(source)
    left_out = len(columns) - len(columns[:most])
    drawn = {key: tuple(names) for key, names in found.items()}
    return LineageGraph(table, drawn, tuple(edges), _levels(table, edges), left_out)


def _levels(table: dg.AssetKey, edges: Iterable[tuple[Node, Node]]) -> dict[dg.AssetKey, int]:
    steps = {(source[0], sink[0]) for source, sink in edges if source[0] != sink[0]}
    levels = {table: 0, **{source: 1 for source, _ in steps if source != table}}
    # As often as the longest way could need; a table that is computed from its own rows has no longest way.
    for _ in levels:
        for source, sink in steps:
            if source != table:
                levels[source] = max(levels[source], levels[sink] + 1)
    return levels


def latest_lineage(instance: dg.DagsterInstance) -> Callable[[dg.AssetKey], dg.TableColumnLineage | None]:
    """Return the lineage that a table's latest materialization on the instance reported."""

    def lineage_of(table: dg.AssetKey) -> dg.TableColumnLineage | None:
        event = instance.get_latest_materialization_event(table)
        made = event.asset_materialization if event else None
        reported = made.metadata.get(COLUMN_LINEAGE) if made else None
        return reported.value if isinstance(reported, dg.TableColumnLineageMetadataValue) else None

    return lineage_of

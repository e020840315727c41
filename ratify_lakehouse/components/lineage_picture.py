"""The picture of a table's column lineage: an SVG, which the asset page shows and browsers open without a network."""

import base64
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

import dagster as dg

from ratify_lakehouse.components.lineage_graph import LineageGraph, Node

_ROW = 20
_CHARACTER = 6.7
_MARGIN = 10
_BETWEEN_LEVELS = 70
_BETWEEN_TABLES = 18
_LONGEST = 60
"""Characters of a name that are shown."""

_COLORS = ("#3b6fb6", "#c2571a", "#2f855a", "#8b4fa8", "#b7791f", "#0f7c8a", "#b83280", "#5a6b7b")
_STYLE = (
    "text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#1a202c}"
    ".t{font-weight:bold}path{fill:none;stroke-width:1.3;opacity:.75}"
)


@dataclass(frozen=True)
class _Box:
    """Where a table stands."""

    x: float
    y: float
    width: float
    title: str
    columns: Sequence[str]

    @property
    def height(self) -> float:
        return _ROW * (len(self.columns) + 1)

    def middle(self, column: str) -> float:
        """The height of a column's row."""
        return self.y + _ROW * (self.columns.index(column) + 1.5)


def shown_lineage(graph: LineageGraph) -> dg.MarkdownMetadataValue:
    """Return the picture as the asset page shows it: within the text, because the UI loads pictures from nowhere else."""
    encoded = base64.b64encode(lineage_svg(graph).encode()).decode()
    return dg.MetadataValue.md(f"![The columns that each column is computed from](data:image/svg+xml;base64,{encoded})")


def lineage_svg(graph: LineageGraph) -> str:
    """Return the picture of a graph: the table on the right, and the tables that it is computed from to the left."""
    boxes = _boxes(graph)
    width = max(box.x + box.width for box in boxes.values()) + _MARGIN
    height = max(box.y + box.height for box in boxes.values()) + _MARGIN
    colors = {node: _COLORS[number % len(_COLORS)] for number, node in enumerate(_nodes(graph))}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
        *(_edge(boxes, source, sink, colors[sink]) for source, sink in graph.edges),
        *(part for key, box in boxes.items() for part in _table(box, own=key == graph.table)),
        "</svg>",
    ]
    return "".join(parts)


def _nodes(graph: LineageGraph) -> list[Node]:
    return [(key, column) for key, columns in graph.columns.items() for column in columns]


def _boxes(graph: LineageGraph) -> dict[dg.AssetKey, _Box]:
    """Place the tables: a level beside the other, the tables of a level below each other."""
    titles = {key: _title(key, graph.table) for key in graph.columns}
    if graph.left_out:
        titles[graph.table] += f" ({len(graph.columns[graph.table])} columns, {graph.left_out} are not drawn)"
    boxes = dict[dg.AssetKey, _Box]()
    x = float(_MARGIN)
    for level in sorted(set(graph.levels.values()), reverse=True):
        keys = [key for key in graph.columns if graph.levels[key] == level]
        width = max(_width(name) for key in keys for name in (titles[key], *graph.columns[key])) + 2 * _MARGIN
        y = float(_MARGIN)
        for key in keys:
            boxes[key] = _Box(x, y, width, titles[key], graph.columns[key])
            y += boxes[key].height + _BETWEEN_TABLES
        x += width + _BETWEEN_LEVELS
    return boxes


def _title(key: dg.AssetKey, table: dg.AssetKey) -> str:
    """The table's name, without the catalog where that is the same as the drawn table's."""
    path = key.path
    return ".".join(path[1:] if len(path) > 1 and path[0] == table.path[0] else path)


def _edge(boxes: dict[dg.AssetKey, _Box], source: Node, sink: Node, color: str) -> str:
    start, end = boxes[source[0]], boxes[sink[0]]
    x1, y1, x2, y2 = start.x + start.width, start.middle(source[1]), end.x, end.middle(sink[1])
    bend = _BETWEEN_LEVELS * 0.6
    curve = f"{x1 + bend:.0f} {y1:.0f} {x2 - bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
    return f'<path stroke="{color}" d="M{x1:.0f} {y1:.0f}C{curve}"/>'


def _table(box: _Box, *, own: bool) -> list[str]:
    fill = "#dbe7f7" if own else "#edf2f7"
    at = f'x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}"'
    x = box.x + _MARGIN
    return [
        f'<rect {at} height="{box.height:.0f}" rx="4" fill="#fff" stroke="#a0aec0"/>',
        f'<rect {at} height="{_ROW}" rx="4" fill="{fill}" stroke="#a0aec0"/>',
        f'<text class="t" x="{x:.0f}" y="{box.y + 14:.0f}">{_text(box.title)}</text>',
        *(f'<text x="{x:.0f}" y="{box.middle(column) + 4:.0f}">{_text(column)}</text>' for column in box.columns),
    ]


def _shown(name: str) -> str:
    """A name as it is drawn: no characters that XML has not, and none that change how others are drawn."""
    printable = "".join(c if c.isprintable() and unicodedata.category(c) != "Cs" else "�" for c in name)
    return printable if len(printable) <= _LONGEST else f"{printable[: _LONGEST - 1]}…"


def _text(name: str) -> str:
    return escape(_shown(name))


def _width(name: str) -> float:
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in _shown(name))
    return (len(_shown(name)) + wide) * _CHARACTER

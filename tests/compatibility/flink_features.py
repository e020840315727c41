"""Which features of a table this project's sink for Flink refuses, by the features' names, with a part of its error."""

from collections.abc import Mapping

REFUSED: Mapping[str, str] = {
    "column mapping by name": "has mapped columns (delta.columnMapping.mode = name)",
    "column mapping by id": "has mapped columns (delta.columnMapping.mode = id)",
    "column mapping by name, and partitions": "has mapped columns (delta.columnMapping.mode = name)",
    "CHECK constraints": "it has CHECK constraints (delta.constraints.positive)",
    "generated columns": "requires writer table features [generatedColumns]",
    "default values": "Column Default values is not supported",
    "identity columns": "requires writer table features [identityColumns]",
}

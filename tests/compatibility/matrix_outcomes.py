"""What becomes of a value or a feature between a writer and a reader, as it is expected and as it is measured."""

import re
from dataclasses import dataclass

WRITERS = {"spark": "Spark", "append": "DuckDB, `append`", "insert": "DuckDB, `INSERT`"}
READERS = {"spark": "Spark", "duckdb": "DuckDB", "deltalake": "deltalake"}

Cell = tuple[str, str]
"""A writer and a reader."""


@dataclass(frozen=True)
class Outcome:
    """What is expected: `shows` matches what is measured, of which equality has none.

    What is measured is empty where all is equal, or `error: …`, or `differs: …`.
    """

    kind: str
    shows: str = ""
    limit: str = ""

    def met_by(self, measured: str) -> bool:
        """Whether it is just this that was measured: a limit that has gone is not met."""
        return bool(re.search(self.shows, measured, re.DOTALL)) if self.shows else measured == ""

    def __str__(self) -> str:
        return f"limit: [{self.limit}](#{slug(self.limit)})" if self.limit else self.kind


def slug(title: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


EQUAL = Outcome("equal")


def refused(by: str) -> Outcome:
    """A clear error, before anything is written or read."""
    return Outcome("refused", f"^error: .*{by}")


def limit(title: str, shows: str) -> Outcome:
    """A limit that docs/compatibility.md names."""
    return Outcome("limit", shows, title)


def cells(
    *, spark: Outcome = EQUAL, append: Outcome | None = None, insert: Outcome | None = None, **one: Outcome
) -> dict[Cell, Outcome]:
    """Return what is expected of all writers and readers.

    Args:
        spark, append, insert: Of all that this writer wrote; of DuckDB's INSERT what is expected of `append`, if not said.
        one: Of a writer and a reader, as `spark_duckdb`, or of a reader, as `duckdb`, whoever wrote.
    """
    append = append or EQUAL
    by_writer = {"spark": spark, "append": append, "insert": insert or append}
    return {
        (writer, reader): one.get(f"{writer}_{reader}")
        or (by_writer[writer] if by_writer[writer].kind == "refused" else one.get(reader) or by_writer[writer])
        for writer in WRITERS
        for reader in READERS
    }

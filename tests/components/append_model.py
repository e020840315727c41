"""A table of the strategy `append`, in plain Python: the versions of its input, and its own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

InputRow = tuple[int, int, int]
Numbered = tuple[int, InputRow]
"""A row with a number of its own: the driving input may have equal ones."""
TableRow = tuple[int, int, int | None]

LEAST = -5
"""The query leaves out rows whose value is not greater."""


@dataclass(frozen=True)
class TableVersion:
    """A version of the table: its rows, the version of the driving input up to which they were taken, and whether the log
    says so."""

    rows: tuple[TableRow, ...] = ()
    taken: int | None = None
    known: bool = True


@dataclass
class AppendModel:
    """The versions of the driving input and of the table.

    Attributes:
        inputs: For each version of the driving input: its rows, and whether a pass that has taken earlier ones cannot go on.
        weights: The other input.
        table: The table's versions; none before the first pass.
        first: The first version of the table that the log still has.
        factor: What the query multiplies by.
    """

    inputs: list[tuple[tuple[Numbered, ...], bool]] = field(default_factory=lambda: [((), False)])
    weights: dict[int, int] = field(default_factory=dict[int, int])
    table: list[TableVersion] = field(default_factory=list[TableVersion])
    first: int = 0
    factor: int = 1
    numbers: Iterator[int] = field(default_factory=count)

    @property
    def rows(self) -> tuple[Numbered, ...]:
        return self.inputs[-1][0]

    def numbered(self, rows: Sequence[InputRow]) -> list[Numbered]:
        """Rows as new ones."""
        return [(next(self.numbers), row) for row in rows]

    @property
    def taken(self) -> int | None:
        return self.table[-1].taken if self.table else None

    @property
    def fails(self) -> bool:
        """Whether a pass is an error, because it is not known what was taken, or because such rows were changed."""
        if self.table and not self.table[-1].known:
            return True
        return self.taken is not None and any(rewrote for _, rewrote in self.inputs[self.taken + 1 :])

    def new_rows(self) -> list[TableRow]:
        before = set(() if self.taken is None else self.inputs[self.taken][0])
        return self._joined([row for row in self.rows if row not in before])

    def pass_over(self) -> None:
        """A pass that succeeds."""
        self._created()
        if new := self.new_rows():
            self.table.append(TableVersion((*self.table[-1].rows, *new), len(self.inputs) - 1))

    def refresh(self) -> None:
        self._created()
        self.table.append(TableVersion(tuple(self._joined(self.rows)), len(self.inputs) - 1))

    def _created(self) -> None:
        if not self.table:
            self.table.append(TableVersion())

    def _joined(self, rows: Sequence[Numbered]) -> list[TableRow]:
        return [(n, v * self.factor, self.weights.get(k)) for _, (n, k, v) in rows if v > LEAST]

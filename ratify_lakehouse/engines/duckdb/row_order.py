"""The order of the rows of a rewritten file, as DuckDB's ORDER BY."""

from collections.abc import Sequence
from dataclasses import dataclass

from ratify_lakehouse.sql.duckdb_sql import identifier

_BITS, _BITS_OF_A_COLUMN = 62, 16


@dataclass(frozen=True)
class RowOrder:
    """Columns to order rows by.

    Attributes:
        columns: None: the rows stay as they come.
        z_order: By all of these columns alike, along a Z-order curve, so that a reader which asks for values of any one of
            them skips row groups. Otherwise by the first, where it is equal by the second, and so on.
    """

    columns: tuple[str, ...] = ()
    z_order: bool = False

    def ordered(self, query: str) -> str:
        """Return the query of the rows of another in this order; that query itself without columns."""
        if not self.columns:
            return query
        if not self.z_order:
            return f"SELECT * FROM ({query}) ORDER BY {', '.join(map(_key, self.columns))}"
        # A curve over the ranks of the values, not the values themselves: it takes any type, and values that lie close
        # together do not share one cell. Equal values have one rank.
        bits = min(_BITS_OF_A_COLUMN, _BITS // len(self.columns))
        ranks = {
            f"_rank_{number}": f"(rank() OVER (ORDER BY {key}) - 1) * {1 << bits} // count(*) OVER ()"
            for number, key in enumerate(map(_key, self.columns))
        }
        return (
            f"SELECT * EXCLUDE ({', '.join(ranks)}) FROM (SELECT *, "
            f"{', '.join(f'{rank} AS {name}' for name, rank in ranks.items())} FROM ({query})) "
            f"ORDER BY {_interleaved(list(ranks), bits)}"
        )


AS_THEY_COME = RowOrder()


def _key(column: str) -> str:
    # Where DuckDB orders by a column itself, it writes the values back from its sort keys, which hold -0.0 as 0.0.
    return f"create_sort_key({identifier(column)}, 'ASC NULLS LAST')"


def _interleaved(numbers: Sequence[str], bits: int) -> str:
    """One number whose bits are those of each number in turn."""
    return " + ".join(
        f"((({number} >> {bit}) & 1) << {bit * len(numbers) + place})"
        for bit in range(bits)
        for place, number in enumerate(numbers)
    )

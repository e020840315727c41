"""How the rows of a table are divided among its files."""

from collections.abc import Mapping
from dataclasses import dataclass

from ratify_lakehouse.column_types import NESTED
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.sql.spark_sql import identifier

PARTITION_TYPES = frozenset({"string", "date", "tinyint", "smallint", "int", "bigint", "boolean"})
"""Types of columns that a table may be partitioned by: every engine reads their values from the log alike."""

_MOST_CLUSTERED = 4


@dataclass(frozen=True)
class Layout:
    """A layout of a table.

    Attributes:
        partition_by: Columns by whose values its files are divided.
        cluster_by: Columns by which the rows of its files lie together, up to four. A table has one of both, or neither.
    """

    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.partition_by:
            return f"partitioned by {', '.join(self.partition_by)}"
        return f"clustered by {', '.join(self.cluster_by)}" if self.cluster_by else "neither partitioned nor clustered"

    @property
    def ddl(self) -> str:
        """The clause of Spark's CREATE TABLE; empty where there is none."""
        if self.partition_by:
            return f"PARTITIONED BY ({', '.join(map(identifier, self.partition_by))})\n"
        return f"CLUSTER BY ({', '.join(map(identifier, self.cluster_by))})\n" if self.cluster_by else ""

    @property
    def is_z_ordered(self) -> bool:
        """Whether rows lie along a Z-order curve: along one column, it is the order of its values."""
        return len(self.cluster_by) > 1

    def same_as(self, other: "Layout") -> bool:
        """Return whether both are one layout: names of columns ignore case."""
        return str(self).casefold() == str(other).casefold()

    def check(self, where: str, types: Mapping[str, str], *, all_known: bool) -> None:
        """Check that a table can have this layout.

        Args:
            where: Names the table in errors.
            types: Its columns with their types, as `sql_type` spells them; empty where a type is not known yet.
            all_known: Whether it has no other columns.

        Raises:
            UnsafeDeclaration: it cannot.
        """
        for place, named in (("partition_by", self.partition_by), ("cluster_by", self.cluster_by)):
            for number, name in enumerate(named):
                if all_known and name not in types:
                    raise UnsafeDeclaration(f"{where}: {name!r} is not a column of {', '.join(types)}.", place, number)
                if name in named[:number]:
                    raise UnsafeDeclaration(f"{where}: {name!r} is there twice.", place, number)
        self._check_types(where, types)
        if self.partition_by and self.cluster_by:
            raise UnsafeDeclaration(f"{where}: Delta has no table that is both partitioned and clustered.", "cluster_by")
        if len(self.cluster_by) > _MOST_CLUSTERED:
            raise UnsafeDeclaration(f"{where}: Delta clusters by {_MOST_CLUSTERED} columns at most.", "cluster_by")
        if all_known and self.partition_by and len(self.partition_by) == len(types):
            raise UnsafeDeclaration(f"{where}: at least one column has to be in the files.", "partition_by")

    def _check_types(self, where: str, types: Mapping[str, str]) -> None:
        for number, name in enumerate(self.partition_by):
            if (found := types.get(name)) and found not in PARTITION_TYPES:
                listed = ", ".join(sorted(PARTITION_TYPES))
                raise UnsafeDeclaration(f"{where}: {name!r} is {found}; partition by {listed}.", "partition_by", number)
        for number, name in enumerate(self.cluster_by):
            if NESTED.match(found := types.get(name, "")):
                raise UnsafeDeclaration(f"{where}: {found} {name!r} has no order.", "cluster_by", number)


NO_LAYOUT = Layout()

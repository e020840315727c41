"""The attribute `maintenance` of a table: from when on it is maintained, and how."""

from collections.abc import Collection

import dagster as dg
from pydantic import Field

from ratify_lakehouse.delta.maintenance_need import TableMaintenance
from ratify_lakehouse.errors import UnsafeDeclaration

_DEFAULT = TableMaintenance()


class DeclaredMaintenance(dg.Model, dg.Resolvable):
    """When the job `maintenance` maintains the table, and how. A compaction changes no row."""

    enabled: bool = Field(
        default=True, description="Whether the table is maintained, and the check `maintained_as_declared` warns"
    )
    small_files: int = Field(
        default=_DEFAULT.small_files,
        description="Compact when this many small files (under half the target size) can be merged",
    )
    small_ratio: float = Field(default=_DEFAULT.small_ratio, description="… and are at least this share of all files")
    deleted_rows: int = Field(
        default=_DEFAULT.deleted_rows, description="Compact when its files still have this many deleted rows"
    )
    deleted_ratio: float = Field(
        default=_DEFAULT.deleted_ratio, description="… and these are at least this share of the rows in the files"
    )
    log_versions: int = Field(
        default=_DEFAULT.log_versions, description="Write a checkpoint after this many versions without one"
    )
    target_mb: int = Field(
        default=_DEFAULT.target_bytes >> 20, description="Size of the files that a compaction makes, in MB"
    )
    sort: list[str] = Field(default=[], description="Columns to sort each new file by, so that readers can skip more")

    z_order: bool = Field(
        default=False,
        description="Weigh all columns of `sort` alike, by Z-order, so that filters on any of them are fast",
    )

    def table_maintenance(self, *, is_sorted: bool = True) -> TableMaintenance:
        """Return what is declared.

        Args:
            is_sorted: Whether the table has the columns of `sort`.
        """
        return TableMaintenance(
            enabled=self.enabled,
            small_files=self.small_files,
            small_ratio=self.small_ratio,
            deleted_rows=self.deleted_rows,
            deleted_ratio=self.deleted_ratio,
            log_versions=self.log_versions,
            target_bytes=self.target_mb << 20,
            sort=tuple(self.sort) if is_sorted else (),
            z_order=self.z_order,
        )

    def check(self, columns: Collection[str] | None) -> None:
        """Check the thresholds, and that the table has the columns of `sort`.

        Args:
            columns: Those of the table; None where not all are known.

        Raises:
            UnsafeDeclaration: a number is out of its bounds, or the table lacks a column, or one is named twice.
        """
        # Here and not by pydantic, whose errors name the line of `maintenance` only.
        for name, least in {"small_files": 2, "deleted_rows": 1, "log_versions": 1, "target_mb": 1}.items():
            if getattr(self, name) < least:
                raise UnsafeDeclaration(f"it is {getattr(self, name)}; the minimum is {least}.", name)
        for name in ("small_ratio", "deleted_ratio"):
            if not 0 < getattr(self, name) <= 1:
                raise UnsafeDeclaration(f"it is {getattr(self, name)}; it must be above 0, and at most 1.", name)
        if self.z_order and len(self.sort) < 2:
            raise UnsafeDeclaration(
                "name at least two columns in `sort`: a Z-order of one column is a plain sort.", "z_order"
            )
        given = [name.casefold() for name in self.sort]
        known = {name.casefold() for name in columns or ()}
        for number, name in enumerate(given):
            if name in given[:number]:
                raise UnsafeDeclaration(f"{self.sort[number]!r} is there twice.", "sort", number)
            if columns is not None and name not in known:
                raise UnsafeDeclaration(
                    f"{self.sort[number]!r} is not a column of the table, which has {', '.join(columns)}.", "sort", number
                )

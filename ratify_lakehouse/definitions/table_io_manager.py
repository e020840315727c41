"""An IO manager for Dagster projects whose assets return DataFrames: each asset's rows are a table of the catalog."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.engines.duckdb.given_rows import arrow_rows
from ratify_lakehouse.engines.duckdb.python_tables import PythonTable, TableRows, table
from ratify_lakehouse.errors import InvalidDeclaration

if TYPE_CHECKING:
    from ratify_lakehouse.engines.duckdb.given_rows import Appendable


class StoredAs(StrEnum):
    """How the rows that an asset returns are stored: in place of those that its table has, or beside them."""

    OVERWRITE = "overwrite"
    APPEND = "append"


_READERS: Mapping[tuple[str, str], Callable[[TableRows], Any]] = {
    ("pyarrow", "Table"): TableRows.arrow,
    ("pyarrow", "RecordBatchReader"): TableRows.to_batches,
    ("polars", "LazyFrame"): TableRows.polars,
    ("polars", "DataFrame"): lambda rows: rows.polars().collect(),
    ("pandas", "DataFrame"): TableRows.pandas,
    ("duckdb", "DuckDBPyRelation"): TableRows.duckdb,
}
"""How rows are read for an input, by the package and the name of its annotation: none of these is imported for that."""


class RatifyIOManager(dg.ConfigurableIOManager):
    """Stores the rows that assets return in tables, and gives these to assets that ask for them.

    The last two parts of an asset's key are the table, schema.table. A table that is missing is created with the columns of
    the rows. Rows are tables or DataFrames of Arrow, Polars or pandas. An input is what its annotation says: `pa.Table`,
    `pa.RecordBatchReader`, `pl.DataFrame`, `pl.LazyFrame`, `pd.DataFrame` or `duckdb.DuckDBPyRelation`; without one, it is a
    `ratify_lakehouse.PythonTable`. The metadata `ratify/stored_as` of an asset goes before `stored_as`.
    """

    catalog: dg.ResourceDependency[UnityCatalog]
    stored_as: StoredAs = Field(
        default=StoredAs.OVERWRITE,
        description="overwrite: the table has the rows of the last run alone; append: of all runs",
    )
    default_schema: str = Field(default="", description="Schema of assets whose key has one part")

    def handle_output(self, context: dg.OutputContext, obj: "Appendable | None") -> None:
        """Write rows; of None, nothing: the asset has written its table itself."""
        if obj is None:
            return
        stored, to = self._stored_as(context), self._table(context.asset_key)
        # Once, although they are asked for their columns before they are written: a reader gives its rows to the first.
        rows = arrow_rows(to.full_name, obj)
        created = to.create(rows)
        if stored is StoredAs.APPEND:
            partition = context.partition_key if context.has_partition_key else ""
            # A step that is retried in its run has written these rows already, or not.
            version = to.append(rows, load_id=f"{context.asset_key.to_user_string()}:{partition}:{context.run_id}")
        else:
            version = to.overwrite(rows)
        context.add_output_metadata(
            {"dagster/table_name": to.full_name, "delta_version": version, **({"created": True} if created else {})}
        )

    def load_input(self, context: dg.InputContext) -> Any:
        """Return the rows of a table, as the input's annotation says."""
        rows = self._table(context.asset_key)
        wanted: Any = context.dagster_type.typing_type
        if wanted is Any or wanted is PythonTable:
            return rows
        named = str(wanted.__module__).partition(".")[0].lstrip("_"), str(wanted.__name__)
        if named not in _READERS:
            raise InvalidDeclaration(
                f"{context.asset_key.to_user_string()}: an input cannot be a {wanted}. Annotate it as a table or DataFrame "
                "of Arrow, Polars or pandas, a relation of DuckDB, or a PythonTable."
            )
        return _READERS[named](rows)

    def _stored_as(self, context: dg.OutputContext) -> StoredAs:
        where, declared = context.asset_key.to_user_string(), (context.definition_metadata or {}).get("ratify/stored_as")
        try:
            stored = StoredAs(declared or self.stored_as)
        except ValueError:
            words = " or ".join(StoredAs)
            raise InvalidDeclaration(f"{where}: ratify/stored_as is {declared!r}; write {words}.") from None
        if stored is StoredAs.OVERWRITE and context.has_asset_partitions:
            raise InvalidDeclaration(
                f"{where} has partitions, of which each would overwrite the whole table: store it by append, or declare the "
                "table as a kind of ratify_lakehouse, which replaces a partition."
            )
        return stored

    def _table(self, key: dg.AssetKey) -> PythonTable:
        *_, schema, name = [self.default_schema, *key.path]
        if not schema:
            raise InvalidDeclaration(
                f"{key.to_user_string()} names no schema: set key_prefix, or default_schema of RatifyIOManager."
            )
        return table(f"{schema}.{name}", catalog=self.catalog)

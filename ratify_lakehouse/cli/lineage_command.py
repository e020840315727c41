"""`ratify lineage`: a picture of the columns that a table is computed from."""

from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from ratify_lakehouse.cli.terminal_output import out

if TYPE_CHECKING:
    import dagster as dg


def lineage(table: Annotated[str, typer.Argument(help="schema.table, or catalog.schema.table.")]) -> None:
    """Draw the columns of other tables that a table's columns are computed from, up to bronze, as an SVG for a browser.

    It goes by the latest materialization of each table; its asset page shows the same picture.
    """
    from ratify_lakehouse.cli.dagster_session import dagster_instance
    from ratify_lakehouse.components.lineage_graph import latest_lineage, lineage_graph
    from ratify_lakehouse.components.lineage_picture import lineage_svg
    from ratify_lakehouse.settings import Settings

    settings = Settings()
    with dagster_instance() as instance:
        key = _key(table, settings.unity_catalog)
        svg = lineage_svg(lineage_graph(key, _columns(instance, key), latest_lineage(instance)))
    file = settings.home / "lineage" / f"{quote(table, safe='')}.svg"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(svg, encoding="utf-8")
    out.print(str(file), highlight=False, soft_wrap=True)


def _key(table: str, catalog: str) -> "dg.AssetKey":
    import dagster as dg

    from ratify_lakehouse.cli.engine_session import name_parts

    return dg.AssetKey(name_parts(catalog, table))


def _columns(instance: "dg.DagsterInstance", key: "dg.AssetKey") -> list[str]:
    """The columns of a table as its latest materialization reported them.

    Raises:
        TableMissing: no run has materialized the table.
    """
    import dagster as dg

    from ratify_lakehouse.errors import TableMissing

    event = instance.get_latest_materialization_event(key)
    made = event.asset_materialization if event else None
    schema = made.metadata.get("dagster/column_schema") if made else None
    if not isinstance(schema, dg.TableSchemaMetadataValue):
        raise TableMissing(
            f"No run has materialized {'.'.join(key.path)}, so its columns are unknown: materialize it first, or check "
            "its name."
        )
    return [column.name for column in schema.value.columns]

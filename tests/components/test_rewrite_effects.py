"""What the next runs do after somebody has changed rows of a table by hand, by the kind of the table and of its readers."""

import pytest

from ratify_lakehouse.components.declared_component import DeclaredComponent
from ratify_lakehouse.components.rewrite_effects import own_effect, reader_effect
from ratify_lakehouse.components.table_component import TableComponent
from ratify_lakehouse.definitions.project_tables import declared_tables
from tests.components.declared_projects import Project

SQL = "SELECT order_id, amount FROM bronze.orders"
STRATEGIES = {
    "full": "keys: [order_id]",
    "incremental": "keys: [order_id]",
    "append": "freshness: {}",
    "append_by_period": "append_by_period: {period: order_id}",
    "scd2": "keys: [order_id]",
}


def test_every_declared_table_and_reader_has_a_sentence_of_its_own() -> None:
    tables = declared_tables()
    general = "its next run reads the rows that are there then"
    for table in tables.components.values():
        for restored in (True, False):
            assert general != own_effect(table, restored=restored)
        for written in table.written:
            for reader in tables.followers(written.table_name):
                assert general != reader_effect(reader, written.table_name)


@pytest.mark.parametrize(
    ("strategy", "restored", "own", "reading"),
    [
        ("full", True, "makes it equal to its query again", "computes all rows"),
        ("incremental", False, "makes it equal to its query again", "computes what differs"),
        ("append", True, "continues from that version", "if others were changed, its next run fails"),
        ("append", False, "appends new rows, and leaves", "deleted stay in it"),
        ("append_by_period", True, "takes periods that it does not have", "rows that it has stay"),
        ("scd2", False, "compares its query with the versions", "adds versions of the rows"),
    ],
)
def test_by_strategy(project: Project, strategy: str, restored: bool, own: str, reading: str) -> None:
    given = (
        f"type: ratify_lakehouse.SqlTable\nattributes:\n  description: x\n  strategy: {strategy}\n  {STRATEGIES[strategy]}\n"
    )
    project.write(
        "bronze", "orders", "type: ratify_lakehouse.LandedFiles\nattributes: {description: x, pattern: shop/*.csv}\n"
    )
    project.write("silver", "orders", given, SQL)
    tables, name = project.tables, f"{project.schema('bronze')}.orders"
    readers: list[DeclaredComponent] = list(tables.followers(name.upper()))
    assert [reader.folder.parent.name for reader in readers] == [project.schema("silver")]
    assert reading in reader_effect(readers[0], name)
    found = tables.written_by(f"{project.schema('silver')}.ORDERS")
    assert found is not None
    table: TableComponent = found[0]
    assert own in own_effect(table, restored=restored)
    assert tables.written_by("silver.nobody") is None
    assert tables.followers("silver.nobody") == []

"""Syncs of a principal that may read the destination and not write to it: refused, by name, whatever runs them."""

import httpx
import pytest

from components.syncs.sync_connection import connection_steps
from components.syncs.sync_declaration import SyncExecutor, SyncMode
from components.syncs.sync_executors import pass_of
from resources.errors import CatalogDenied
from tests.components.declared_syncs import declared, names, stored, table
from tests.embedded.catalog.harness import READ, ClientPrincipal
from tests.resources.lakehouse import Lakehouse
from tests.resources.test_principals import As, admin, as_

__all__ = ["admin", "as_"]

pytestmark = pytest.mark.stack


@pytest.mark.parametrize(
    ("executor", "mode"),
    [
        *((SyncExecutor.DUCKDB, mode) for mode in (SyncMode.INSERT, SyncMode.MIRROR, SyncMode.REPLACE)),
        (SyncExecutor.SPARK, SyncMode.MIRROR),
        *(pytest.param(SyncExecutor.SPARK, mode, marks=pytest.mark.long) for mode in (SyncMode.INSERT, SyncMode.REPLACE)),
    ],
)
def test_without_modify_nothing_is_written(
    bronze: Lakehouse, admin: httpx.Client, as_: As, executor: SyncExecutor, mode: SyncMode
) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT id FROM range(3)")
    bronze.quick(f"CREATE TABLE ratify.bronze.{destination} (id BIGINT) USING DELTA")
    bronze.quick(f"INSERT INTO ratify.bronze.{destination} VALUES (7)")
    sync = declared(destination, mode, table(source), *(["id"] if mode.keyed else []), executor=executor)
    spark, duckdb = as_(ClientPrincipal.create(admin, *READ).token())
    needs = f"needs MODIFY on ratify.bronze.{destination}"
    with pytest.raises(CatalogDenied, match=needs):
        pass_of(spark, duckdb, sync).run()
    # A plan only reads.
    assert pass_of(spark, duckdb, sync).plan()[0].inserted == 3
    lacking = [(step.name, step.lacks) for step in connection_steps(spark, duckdb, sync) if step.lacks]
    assert [name for name, _ in lacking] == ["the destination can be written"]
    assert "MODIFY" in lacking[0][1]
    assert stored(bronze, destination) == [(7,)]

"""Syncs of a principal that may read the destination and not write to it: refused, by name, whatever runs them."""

import httpx
import pytest

from ratify_lakehouse.components.syncs.sync_connection import connection_steps
from ratify_lakehouse.components.syncs.sync_declaration import SyncEngine, SyncStrategy
from ratify_lakehouse.components.syncs.sync_engines import pass_of
from ratify_lakehouse.errors import CatalogDenied
from tests.components.declared_syncs import declared, names, stored, table
from tests.embedded.catalog.harness import READ, ClientPrincipal
from tests.engines.lakehouse import Lakehouse
from tests.engines.test_principals import As, admin, as_

__all__ = ["admin", "as_"]

pytestmark = pytest.mark.stack


@pytest.mark.parametrize(
    ("engine", "strategy"),
    [
        *((SyncEngine.DUCKDB, strategy) for strategy in (SyncStrategy.APPEND, SyncStrategy.MIRROR, SyncStrategy.FULL)),
        (SyncEngine.SPARK, SyncStrategy.MIRROR),
        *(
            pytest.param(SyncEngine.SPARK, strategy, marks=pytest.mark.long)
            for strategy in (SyncStrategy.APPEND, SyncStrategy.FULL)
        ),
    ],
)
def test_without_modify_nothing_is_written(
    bronze: Lakehouse, admin: httpx.Client, as_: As, engine: SyncEngine, strategy: SyncStrategy
) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT id FROM range(3)")
    bronze.quick(f"CREATE TABLE ratify.bronze.{destination} (id BIGINT) USING DELTA")
    bronze.quick(f"INSERT INTO ratify.bronze.{destination} VALUES (7)")
    sync = declared(destination, strategy, table(source), *(["id"] if strategy.keyed else []), engine=engine)
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

"""Tables with missing files: found, repaired, and loaded again exactly once."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.table_repair import Repaired, missing_files, planned_repair, repair
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import AlreadyLoaded, UnsafeTable
from tests.engines.faulty_network import CUT, Moment, faulty_network
from tests.engines.lakehouse import Lakehouse, append, pairs

pytestmark = pytest.mark.stack

Rows = list[tuple[int, str]]


@pytest.fixture
def table(lake: Lakehouse) -> TableDeclaration:
    return lake.create(pairs())


def log_of(lake: Lakehouse, table: TableDeclaration) -> DeltaLog:
    return lake.another_duckdb().log(lake.full(table))


def lose(lake: Lakehouse, table: TableDeclaration, version: int) -> str:
    """Delete the one data file that a version brought."""
    (path,) = [action["add"]["path"] for action in lake.commit(table, version) if "add" in action]
    log_of(lake, table).storage.remove(path)
    return path


def readable(lake: Lakehouse, table: TableDeclaration, rows: Rows, *, by_spark: bool = False) -> None:
    """DuckDB reads just these rows, and Spark where that is asked for."""
    assert lake.stored(table) == rows
    assert not by_spark or lake.rows(table) == rows


def missing(lake: Lakehouse, table: TableDeclaration) -> Sequence[str]:
    log = log_of(lake, table)
    return [file.path for file in missing_files(log, log.files(log.refresh()))]


def test_a_file_that_duckdb_deleted_for_it_did_not_hear_of_its_commit(lake: Lakehouse, table: TableDeclaration) -> None:
    append(lake.duckdb, table, "SELECT 1::BIGINT, 'a'", "one")
    with faulty_network(lake.stack.catalog.url) as network:
        network.spoil(Moment.AFTER, then=CUT)
        token = lake.stack.catalog.token_file.read_text().strip()
        deaf = DuckDB(catalog=UnityCatalog(host=network.url, token=token))
        with deaf.session() as session:
            session.attach()
            session.con.execute("SET GLOBAL http_retries = 2")
            with pytest.raises(duckdb.Error):
                session.con.execute(f"INSERT INTO uc.bronze.{table.name} VALUES (2, 'b'), (3, 'c')")
        deaf.close()
    assert lake.version(table) == 2
    (path,) = missing(lake, table)
    with pytest.raises(Exception, match=path):
        lake.rows(table)

    planned = planned_repair(log_of(lake, table))
    assert planned is not None
    assert (planned.version, lake.version(table)) == (None, 2)
    repaired = repair(log_of(lake, table))
    assert repaired is not None
    assert repaired == Repaired(3, planned.missing, (path,), (), planned.missing)
    (lost,) = repaired.lost
    assert (lost.path, lost.rows, lost.version, lost.writer) == (path, 2, 2, "DuckDB")
    readable(lake, table, [(1, "a")])
    assert lake.spark.history(lake.full(table), 1)[0].operation == "FSCK"
    assert repair(log_of(lake, table)) is None
    # Nobody has written it under this id, so it goes in, once.
    assert append(lake.duckdb, table, "SELECT * FROM (VALUES (2::BIGINT, 'b'), (3, 'c'))", "two").version == 4
    with pytest.raises(AlreadyLoaded):
        append(lake.duckdb, table, "SELECT * FROM (VALUES (2::BIGINT, 'b'), (3, 'c'))", "two")
    readable(lake, table, [(1, "a"), (2, "b"), (3, "c")])


def test_loads_with_a_missing_file_can_be_loaded_again_once(lake: Lakehouse, table: TableDeclaration) -> None:
    append(lake.duckdb, table, "SELECT 1::BIGINT, 'a'", "one")
    append(lake.duckdb, table, "SELECT * FROM (VALUES (2::BIGINT, 'b'), (3, 'c'))", "two", "three")
    path = lose(lake, table, 2)
    for round_ in range(2):
        repaired = repair(log_of(lake, table))
        assert repaired is not None
        assert (repaired.removed, repaired.loads, repaired.lost) == ((path,), ("three", "two"), ())
        readable(lake, table, [(1, "a")])
        with lake.duckdb.session() as session:
            assert session.loaded(table, ["one", "two", "three"]) == {"one"}
        again = append(lake.duckdb, table, "SELECT * FROM (VALUES (2::BIGINT, 'b'), (3, 'c'))", "two", "three")
        with pytest.raises(AlreadyLoaded, match="three, two"):
            append(lake.duckdb, table, "SELECT 9::BIGINT, 'z'", "two", "three")
        readable(lake, table, [(1, "a"), (2, "b"), (3, "c")])
        if round_ == 0:
            path = lose(lake, table, again.version)


def test_after_changes_and_checkpoints_only_the_file_goes(lake: Lakehouse, table: TableDeclaration) -> None:
    append(lake.duckdb, table, "SELECT i, 'r' FROM range(10) r(i)", "changed")
    append(lake.duckdb, table, "SELECT i, 'r' FROM range(10, 20) r(i)", "whole")
    lake.run(f"UPDATE {lake.full(table)} SET v = 'new' WHERE id = 1")
    lake.run(f"DELETE FROM {lake.full(table)} WHERE id = 2")
    with lake.duckdb.session() as session:
        session.attach()
        session.con.execute(f"CALL unity_catalog_checkpoint_table('uc.bronze.{table.name}')")
    changed, whole = lose(lake, table, 1), lose(lake, table, 2)
    repaired = repair(log_of(lake, table))
    assert repaired is not None
    assert set(repaired.removed) == {changed, whole} == {file.path for file in repaired.missing}
    # The row that was moved is still there: the load that brought it may not come in a second time.
    assert repaired.loads == ("whole",)
    assert [(lost.path, lost.rows, lost.version) for lost in repaired.lost] == [(changed, 8, 1)]
    readable(lake, table, [(1, "new")])
    append(lake.duckdb, table, "SELECT i, 'r' FROM range(10, 20) r(i)", "whole")
    with pytest.raises(AlreadyLoaded):
        append(lake.duckdb, table, "SELECT i, 'r' FROM range(10) r(i)", "changed")
    readable(lake, table, [(1, "new"), *((id_, "r") for id_ in range(10, 20))])
    lake.run(f"RESTORE TABLE {lake.full(table)} TO VERSION AS OF {repaired.version}")
    readable(lake, table, [(1, "new")])


def test_what_spark_wrote_is_lost_and_its_count_of_batches_is_left_alone(lake: Lakehouse, table: TableDeclaration) -> None:
    frame = lake.spark.session.createDataFrame([(1, "a")], "id bigint, v string").coalesce(1)
    stream = {"txnAppId": "stream", "txnVersion": "7"}
    frame.write.format("delta").mode("append").options(**stream).saveAsTable(lake.full(table))
    assert [a["txn"]["version"] for a in lake.commit(table, 1) if "txn" in a] == [7]
    lose(lake, table, 1)
    repaired = repair(log_of(lake, table))
    assert repaired is not None
    assert (repaired.loads, [lost.rows for lost in repaired.lost]) == ((), [1])
    assert repaired.lost[0].writer.startswith("Apache-Spark/")
    assert not [action for action in lake.commit(table, 2) if "txn" in action]
    readable(lake, table, [])


@pytest.mark.parametrize(
    ("property_", "message"), [("delta.appendOnly", "append-only"), ("delta.enableChangeDataFeed", "change data feed")]
)
def test_where_removing_is_not_allowed(lake: Lakehouse, property_: str, message: str) -> None:
    table = lake.create(pairs(properties={property_: "true"}))
    append(lake.duckdb, table, "SELECT 1::BIGINT, 'a'", "one")
    path = lose(lake, table, 1)
    with pytest.raises(UnsafeTable, match=message):
        repair(log_of(lake, table))
    planned = planned_repair(log_of(lake, table))
    assert planned is not None
    assert (planned.removed, lake.version(table)) == ((path,), 1)
    # What the message says to do.
    lake.alter(table, {property_: "false"})
    assert repair(log_of(lake, table)) is not None
    readable(lake, table, [], by_spark=True)


def test_repairs_beside_each_other_and_beside_appends(
    lake: Lakehouse, table: TableDeclaration, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(lake.duckdb, table, "SELECT 0::BIGINT, 'r'", "removed")
    lose(lake, table, 1)
    propose = DeltaLog._propose
    late = log_of(lake, table)

    def after_an_append(log: DeltaLog, *arguments: object) -> object:
        if log is late and lake.version(table) == 1:
            append(lake.another_duckdb(), table, "SELECT 1::BIGINT, 'r'", "one")
        return propose(log, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaLog, "_propose", after_an_append)
    repaired = repair(late)
    assert repaired is not None
    assert (repaired.version, repaired.loads) == (3, ("removed",))
    readable(lake, table, [(1, "r")])

    lose(lake, table, 2)
    with ThreadPoolExecutor(3) as pool:
        made = [*pool.map(lambda _: repair(log_of(lake, table)), range(3))]
    assert [one.version for one in made if one] == [4]
    readable(lake, table, [])

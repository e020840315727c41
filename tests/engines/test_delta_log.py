"""The files of a snapshot, as the log has them in all its forms."""

import json
from pathlib import Path
from uuid import uuid4

import pytest
from duckdb import connect

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.commit_actions import Proposal
from ratify_lakehouse.delta.lost_versions import newest_lost_version, wait_for_other_version
from ratify_lakehouse.delta.snapshot import LiveFile
from ratify_lakehouse.engines.duckdb.parquet_files import write_parquet
from ratify_lakehouse.errors import UnsafeTable
from ratify_lakehouse.sql.duckdb_sql import literal
from tests.engines.lakehouse import Lakehouse, append, pairs

pytestmark = pytest.mark.stack


@pytest.fixture
def table(lake: Lakehouse) -> TableDeclaration:
    return lake.create(pairs(properties={"delta.checkpointInterval": "3"}))


def files(lake: Lakehouse, table: TableDeclaration) -> list[LiveFile]:
    """As a writer has them that reads the log for the first time."""
    log = lake.another_duckdb().log(lake.full(table))
    return sorted(log.files(log.refresh()), key=lambda file: file.path)


def summary(found: list[LiveFile]) -> list[tuple[object, ...]]:
    return [(file.key, file.rows, file.version, file.add["size"]) for file in found]


def agree_with_spark(lake: Lakehouse, table: TableDeclaration) -> list[LiveFile]:
    found = files(lake, table)
    by_spark = lake.run(
        f"SELECT DISTINCT _metadata.file_path AS path, count(*) AS rows FROM {lake.full(table)} GROUP BY 1 ORDER BY 1"
    )
    read = {row["path"].rpartition("/")[2]: row["rows"] for row in by_spark}
    assert {file.path: file.rows for file in found if file.rows} == read
    return found


def test_files_by_commits_and_checkpoints_and_deletion_vectors(lake: Lakehouse, table: TableDeclaration) -> None:
    assert files(lake, table) == []
    for number in range(2):
        append(lake.duckdb, table, f"SELECT i, 'r' FROM range({number * 10}, {number * 10 + 10}) r(i)", f"{number}")
    assert sorted(file.version or 0 for file in files(lake, table)) == [1, 2]

    # Spark deletes by vectors, and sums up the log at every third version.
    lake.run(f"DELETE FROM {lake.full(table)} WHERE id IN (0, 1, 15)")
    found = agree_with_spark(lake, table)
    assert [file.has_deletion_vector for file in found] == [True, True]
    assert sorted((file.rows, file.version) for file in found) == [(8, 1), (9, 2)]
    lake.run(f"DELETE FROM {lake.full(table)} WHERE id = 2")
    assert sorted(file.rows or 0 for file in files(lake, table)) == [7, 9]
    log = lake.duckdb.log(lake.full(table))
    storage = log.storage
    assert any("checkpoint" in name for name in storage.names("_delta_log"))
    before = files(lake, table)

    # DuckDB sums it up in its way.
    with lake.duckdb.session() as session:
        session.attach()
        session.con.execute(f"CALL unity_catalog_checkpoint_table('uc.bronze.{table.name}')")
    assert any(name.startswith(f"{4:020d}.checkpoint") for name in storage.names("_delta_log"))
    after = files(lake, table)
    assert summary(after) == summary(before)
    lake.run(f"UPDATE {lake.full(table)} SET v = 'new' WHERE id = 10")
    assert len(agree_with_spark(lake, table)) == 3


def test_a_removed_file_is_removed_for_every_engine_and_described_in_the_log(
    lake: Lakehouse, table: TableDeclaration
) -> None:
    for number in range(2):
        append(lake.duckdb, table, f"SELECT i, 'r' FROM range({number * 10}, {number * 10 + 10}) r(i)", f"{number}")
    lake.run(f"DELETE FROM {lake.full(table)} WHERE id = 1")
    log = lake.duckdb.log(lake.full(table))
    (deleted,) = [file for file in log.files(log.refresh()) if file.has_deletion_vector]
    made = log.commit(lambda snapshot: Proposal(removes=[deleted], operation="WRITE"))
    (remove,) = [action["remove"] for action in lake.commit(table, made.version) if "remove" in action]
    fields = {key: value for key, value in remove.items() if key not in {"deletionTimestamp", "deletionVector"}}
    assert fields == {
        "path": deleted.add["path"],
        "partitionValues": {},
        "size": deleted.add["size"],
        "dataChange": True,
        "extendedFileMetadata": True,
        "baseRowId": 0,
        "defaultRowCommitVersion": 1,
    }
    assert remove["deletionVector"]["cardinality"] == 1
    assert lake.rows(table) == [(id_, "r") for id_ in range(10, 20)]
    with lake.duckdb.session() as session:
        session.attach()
        assert session.count(table) == 10
    assert [file.version for file in files(lake, table)] == [2]


def test_rows_of_an_append_only_table_stay(lake: Lakehouse) -> None:
    table = lake.create(pairs(properties={"delta.appendOnly": "true"}))
    append(lake.duckdb, table, "SELECT 1, 'a'", "one")
    log = lake.duckdb.log(lake.full(table))
    taken = log.files(log.refresh())
    with pytest.raises(UnsafeTable, match="only allows appends"):
        log.commit(lambda snapshot: Proposal(removes=taken))
    assert (lake.version(table), lake.stored(table)) == (1, [(1, "a")])


@pytest.mark.parametrize("kind", ["v2 json", "v2 parquet", "v1", "v1 in parts"])
def test_checkpoints_of_every_kind(lake: Lakehouse, table: TableDeclaration, tmp_path: Path, kind: str) -> None:
    """Made by hand by PROTOCOL.md, and read in place of the commits before it, which are cleaned away."""
    for number in range(2):
        append(lake.duckdb, table, f"SELECT i, 'r' FROM range({number * 10}, {number * 10 + 10}) r(i)", f"{number}")
    before = files(lake, table)
    storage = lake.duckdb.log(lake.full(table)).storage

    def parquet(path: str, select: str) -> None:
        write_parquet(con, select, tmp_path / "made.parquet")
        storage.write(path, (tmp_path / "made.parquet").read_bytes())

    def add(file: LiveFile) -> str:
        values = {
            key: literal(str(file.add[key])) for key in ("path", "stats", "size", "baseRowId", "defaultRowCommitVersion")
        }
        fields = ", ".join(
            f"{key} := {value if key in {'path', 'stats'} else value + '::BIGINT'}" for key, value in values.items()
        )
        return f"SELECT struct_pack({fields}, partitionValues := MAP {{}}::MAP(VARCHAR, VARCHAR)) AS add"

    name = f"_delta_log/{2:020d}.checkpoint"
    with connect() as con:
        if kind == "v1":
            parquet(f"{name}.parquet", " UNION ALL ".join(map(add, before)))
        elif kind == "v1 in parts":
            for part, file in enumerate(before, 1):
                parquet(f"{name}.{part:010d}.{len(before):010d}.parquet", add(file))
        else:
            sidecars = [f"{uuid4()}.parquet" for _ in before]
            for sidecar, file in zip(sidecars, before, strict=True):
                parquet(f"_delta_log/_sidecars/{sidecar}", add(file))
            if kind == "v2 json":
                lines = [json.dumps({"sidecar": {"path": sidecar, "sizeInBytes": 1}}) for sidecar in sidecars]
                storage.write(f"{name}.{uuid4()}.json", "\n".join(lines).encode())
            else:
                parquet(f"{name}.{uuid4()}.parquet", f"SELECT struct_pack(path := unnest({sidecars})) AS sidecar")
    for version in range(2):
        storage.remove(f"_delta_log/{version:020d}.json")
    assert summary(files(lake, table)) == summary(before)
    assert sorted(file.version or 0 for file in before) == [1, 2]
    append(lake.duckdb, table, "SELECT 20, 'r'", "2")
    assert len(files(lake, table)) == 3


def test_a_version_that_another_lost_is_found_and_its_commit_awaited(lake: Lakehouse, table: TableDeclaration) -> None:
    first = append(lake.duckdb, table, "SELECT 1, 'x'", "1").version
    log = lake.duckdb.log(lake.full(table))
    assert newest_lost_version(log, -1) == -1
    # As Spark leaves it whose commit the catalog has refused.
    log.storage.write(f"_delta_log/_staged_commits/{first:020d}.{uuid4()}.json", b"{}")
    second = append(lake.duckdb, table, "SELECT 2, 'y'", "2").version
    assert newest_lost_version(log, -1) == first
    assert newest_lost_version(log, first) == -1
    assert not wait_for_other_version(log, 0.2)
    lake.insert(table, "VALUES (3, 'z')")
    assert wait_for_other_version(log, 0.2)
    assert lake.version(table) == second + 1

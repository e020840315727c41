"""A table on S3 without Spark: DuckDB's writer commits to it, and cleans up there, with vended credentials only."""

import io
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pyarrow.parquet as pq
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta import table_clean
from ratify_lakehouse.delta.lost_versions import newest_lost_version
from ratify_lakehouse.delta.table_clean import clean
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import AlreadyLoaded
from tests.embedded.catalog.harness import CatalogProcess, create_body, delta, first_commit, stage
from tests.embedded.catalog.s3_server import BUCKET, ROLE, MotoS3
from tests.engines.lakehouse import append, pairs


@pytest.fixture
def server(s3: MotoS3, tmp_path: Path) -> Iterator[CatalogProcess]:
    """A catalog whose tables are all on S3."""
    storage = f"s3://{BUCKET}/lake"
    started = CatalogProcess.start(tmp_path / "catalog", s3_role_arn=ROLE, s3_endpoint=s3.url, storage_root=storage)
    yield started
    assert started.stop() == 0


def create(admin: httpx.Client, s3: MotoS3, table: TableDeclaration) -> None:
    """Create a table whose version 0 is on S3."""
    admin.post("/schemas", json={"name": table.layer, "catalog_name": "ratify"}).raise_for_status()
    staged = stage(admin, table.layer, table.name)
    body = create_body(table.name, staged)
    body["properties"] |= table.created_properties
    key = staged["location"].removeprefix(f"s3://{BUCKET}/")
    text = first_commit(staged["table-id"], body)
    s3.client().put_object(Bucket=BUCKET, Key=f"{key}/_delta_log/{0:020d}.json", Body=text.encode())
    admin.post(f"{delta(table.layer)}/tables", json=body).raise_for_status()


@pytest.mark.server
def test_the_life_of_a_table_on_s3(
    server: CatalogProcess, s3: MotoS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path / "near"))
    catalog = UnityCatalog(host=server.url, token=server.token)
    table = pairs()
    with server.client() as admin:
        create(admin, s3, table)
    # Two spools: the second writer knows the first one's commits from the catalog only.
    duckdb, far = DuckDB(catalog=catalog), DuckDB(catalog=catalog)
    versions = [append(duckdb, table, f"SELECT {at}, 'é'", f"load {at}").version for at in range(2)]
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path / "far"))
    versions.append(append(far, table, "SELECT 2, NULL", "load 2").version)
    assert versions == [1, 2, 3]
    with pytest.raises(AlreadyLoaded):
        append(far, table, "SELECT 1, 'é'", "load 1")
    log = far.log(table.full_name("ratify"))
    files = [pq.read_table(io.BytesIO(log.storage.read(file.path))) for file in log.files(log.refresh())]
    rows = [(row["id"], row["v"]) for file in files for row in file.to_pylist()]
    assert sorted(rows, key=lambda row: row[0]) == [(0, "é"), (1, "é"), (2, None)]
    assert newest_lost_version(log, -1) == -1
    log.storage.write(f"_delta_log/_staged_commits/{2:020d}.{uuid4()}.json", b"{}")
    assert [newest_lost_version(log, after) for after in (-1, 1, 2)] == [2, 2, -1]
    log.storage.write("left.parquet", b"PAR1")
    # Every file is old.
    for name in ("_WEEK_S", "_SHORTEST_S"):
        monkeypatch.setattr(table_clean, name, -1)
    removed = clean(catalog, log)
    assert [file.path for file in removed if file.kind != "staged commit"] == ["left.parquet"]
    assert clean(catalog, log) == []
    with server.client() as admin:
        assert admin.delete(f"/tables/{table.full_name('ratify')}").status_code == 200
    assert s3.objects("lake/") == []
    assert [asked for asked in s3.seen if asked[3]] == []
    for engine in (duckdb, far):
        engine.close()

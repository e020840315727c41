"""A table's files on local disks that lack something: hard links, or space."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta import table_storage
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.delta.table_storage import TableStorage
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import StorageUnavailable
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.embedded.catalog.harness import CatalogAddress, TableClient, log_of
from tests.engines.declared_tables import create_declared
from tests.engines.lakehouse import append, pairs
from tests.engines.live_tables import read_live

pytestmark = pytest.mark.server


@pytest.fixture(params=[errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV], ids=errno.errorcode.get)
def without_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What FAT, network disks and a folder that is a mount of its own answer."""

    def link(*_: Any, **__: Any) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(os, "link", link)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogAddress]:
    with catalog_here(tmp_path_factory.mktemp("catalog")) as started:
        with started.client() as api:
            api.post("/schemas", json={"name": "bronze", "catalog_name": "ratify"}).raise_for_status()
        yield started


@pytest.fixture
def table(server: CatalogAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[TableDeclaration, Path]:
    """A new table, and its folder."""
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    made = pairs()
    with server.client() as api:
        location = TableClient.create_readable(api, "bronze", made.name).location
    return made, Path(unquote(urlsplit(location).path))


def engine(server: CatalogAddress) -> DuckDB:
    return DuckDB(catalog=UnityCatalog(host=server.url, token=server.token))


def published(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "_delta_log").glob("*.json"))


def test_a_commit_where_there_are_no_hard_links(
    server: CatalogAddress, table: tuple[TableDeclaration, Path], without_links: None
) -> None:
    made, folder = table
    for number in range(1, 3):
        assert append(engine(server), made, f"SELECT {number}, 'a'", f"{number}").version == number
    assert published(folder) == [f"{version:020d}.json" for version in range(3)]
    assert read_live(engine(server), f"SELECT id FROM uc.bronze.{made.name} ORDER BY id") == [(1,), (2,)]


def test_a_commit_that_cannot_be_published_is_a_commit(
    server: CatalogAddress, table: tuple[TableDeclaration, Path], without_links: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, folder = table
    write = table_storage.write_durably

    def full(path: Path, content: bytes, mode: int) -> None:
        if path.parent.name == "_delta_log":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content, mode)

    with monkeypatch.context() as patch:
        patch.setattr(table_storage, "write_durably", full)
        assert append(engine(server), made, "SELECT 1, 'a'", "1").version == 1
    assert published(folder) == [f"{0:020d}.json"]
    # The next writer publishes it, too.
    assert append(engine(server), made, "SELECT 2, 'a'", "2").version == 2
    assert published(folder) == [f"{version:020d}.json" for version in range(3)]


def test_a_published_version_stays_as_it_is(tmp_path: Path, without_links: None) -> None:
    storage = TableStorage(str(tmp_path), list)
    storage.write("staged", b"ours")
    storage.copy("staged", "there")
    assert (tmp_path / "there").stat().st_mode & 0o777 == 0o644
    storage.write("staged", b"theirs")
    storage.copy("staged", "there")
    assert storage.read("there") == b"ours"
    with pytest.raises(FileNotFoundError):
        storage.copy("missing", "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["staged", "there"]


def test_a_disk_that_fails_is_an_error_of_ours(tmp_path: Path) -> None:
    storage = TableStorage(str(tmp_path), list)
    storage.write("folder/file", b"")
    for failing in (
        lambda: storage.read("folder"),
        lambda: storage.write("folder/file/below", b""),
        lambda: storage.copy("folder/file", "folder/file/below"),
        lambda: storage.names("folder/file"),
        lambda: storage.remove("folder"),
    ):
        with pytest.raises(StorageUnavailable, match="Check the disk"):
            failing()
    storage.discard(["folder", "folder/file", "never"])
    assert storage.names("folder") == []


def test_a_log_that_cannot_be_read_at_the_moment_is_an_error(server: CatalogAddress) -> None:
    """None stands for a table that nobody reads here: what is asked of that would count as not there."""
    table = pairs()
    with server.client() as admin:
        create_declared(admin, table)
        log = log_of(TableClient.of(admin, table.layer, table.name).location)
    catalog, full_name = UnityCatalog(host=server.url, token=server.token), table.full_name("ratify")
    assert TableLog.opened(catalog, full_name)
    log.rename(log.with_name("away"))
    log.write_text("no folder")
    with pytest.raises(StorageUnavailable):
        TableLog.opened(catalog, full_name)

"""The catalog client against a real server in a process of its own: what it creates, and what it says when refused."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.errors import CatalogDenied, CatalogUnavailable, TableMissing
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.embedded.catalog.harness import COLUMNS, CatalogAddress, CatalogProcess, create_body, delta, stage

pytestmark = pytest.mark.server

TABLE = TableDeclaration(
    layer="bronze",
    name="t",
    columns=(Column("id", "bigint"), Column("v", "string")),
    comment="c",
    writer=Engine.DUCKDB,
    operations=frozenset({"WRITE"}),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogAddress]:
    with catalog_here(tmp_path_factory.mktemp("catalog")) as started:
        yield started


@pytest.fixture(scope="module")
def catalog(server: CatalogAddress) -> UnityCatalog:
    return UnityCatalog(host=server.url, token=server.token)


@pytest.fixture(scope="module")
def api(server: CatalogAddress, catalog: UnityCatalog) -> Iterator[httpx.Client]:
    catalog.ensure_schemas(("bronze",))
    with server.client() as client:
        yield client


def create(api: httpx.Client, name: str, columns: dict[str, object] = COLUMNS, **properties: str) -> None:
    body = create_body(name, stage(api, "bronze", name)) | {"columns": columns}
    body["properties"] |= properties
    answer = api.post(f"{delta('bronze')}/tables", json=body)
    assert answer.status_code == 200, answer.text


def declared(name: str) -> TableDeclaration:
    return TableDeclaration("bronze", name, TABLE.columns, "c", TABLE.writer, TABLE.operations)


def test_schemas_are_created_once(catalog: UnityCatalog) -> None:
    assert catalog.ensure_schemas(("once_a", "once_b")) == ["once_a", "once_b"]
    assert catalog.ensure_schemas(("once_a", "once_c", "once_b")) == ["once_c"]
    assert catalog.ensure_schemas(("ONCE_A", "Once_C")) == []
    catalog.default_schema()


def test_a_schema_that_another_has_just_made_is_no_error(catalog: UnityCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.ensure_schemas(("raced",))
    real, calls = UnityCatalog.schemas, list[int]()

    def out_of_date(self: UnityCatalog) -> set[str]:
        calls.append(1)
        return real(self) if len(calls) > 1 else set()

    monkeypatch.setattr(UnityCatalog, "schemas", out_of_date)
    assert catalog.ensure_schemas(("raced",)) == ["raced"]
    assert len(calls) == 2


def test_schemas_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"": {"schemas": [{"name": "information_schema"}], "next_page_token": "2"}, "2": {"schemas": [{"name": "Gold"}]}}

    def request(_: UnityCatalog, *request: object, page_token: str = "", **query: str) -> object:
        assert request[2:] == ("/api/2.1/unity-catalog/schemas", None)
        assert query == {"catalog_name": "shop", "max_results": "0"}
        return pages[page_token]

    monkeypatch.setattr(UnityCatalog, "request", request)
    catalog = UnityCatalog(host="http://catalog", token="t", name="shop")
    assert catalog.schemas() == {"information_schema", "gold"}
    assert catalog.default_schema() == "Gold"


def test_a_wrong_token_is_denied(server: CatalogAddress) -> None:
    wrong = UnityCatalog(host=server.url, token="wr0ng")
    with pytest.raises(CatalogDenied, match="Check UNITY_TOKEN") as denied:
        wrong.default_schema()
    assert "wr0ng" not in str(denied.value)
    with pytest.raises(CatalogDenied):
        wrong.table("ratify.bronze.t")
    with pytest.raises(CatalogDenied):
        wrong.version("ratify.bronze.t")
    with pytest.raises(CatalogDenied):
        wrong.ensure_schemas(("denied",))


def test_a_missing_catalog_schema_or_table(server: CatalogAddress, catalog: UnityCatalog, api: httpx.Client) -> None:
    with pytest.raises(TableMissing, match=r"Catalog not found: nope.*Check the name"):
        UnityCatalog(host=server.url, token=server.token, name="nope").default_schema()
    for name in ("ratify.bronze.nope", "ratify.nope.t"):
        with pytest.raises(TableMissing, match="Check the name"):
            catalog.table(name)
        with pytest.raises(TableMissing, match="Check the name"):
            catalog.version(name)


def test_a_table_and_its_version(catalog: UnityCatalog, api: httpx.Client) -> None:
    create(api, "there")
    assert catalog.version("ratify.bronze.there") == 0
    assert [column.name for column in catalog.table("ratify.bronze.there").columns or []] == ["id", "v"]


def test_a_server_that_is_down(tmp_path: Path) -> None:
    server = CatalogProcess.start(tmp_path)
    catalog = UnityCatalog(host=server.url, token=server.token, retry_seconds=1)
    catalog.default_schema()
    server.kill()
    server.process.stdin.close()
    message = r"did not answer .*Check that it runs \(`ratify status`\) and that UNITY_HOST is right"
    with pytest.raises(CatalogUnavailable, match=message):
        catalog.version("ratify.bronze.t")
    with pytest.raises(CatalogUnavailable, match=message):
        UnityCatalog(host=server.url, token=server.token, retry_seconds=1).default_schema()


def test_the_token_is_in_no_repr(server: CatalogAddress, catalog: UnityCatalog) -> None:
    assert server.token not in repr(catalog.connection) + str(catalog.connection)
    assert catalog.bearer_token() == server.token

"""What the answers to a request to commit mean, each type that the published API has and what is none of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from requests import Response

from ratify_lakehouse.catalog.catalog_answers import updated_table
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.errors import (
    CatalogBusy,
    CatalogDenied,
    CatalogRejected,
    CatalogUnavailable,
    CommitConflict,
    CommitOutcomeUnknown,
    RatifyError,
    TableMissing,
)
from tests.embedded.catalog.harness import CatalogProcess, TableClient, add_commit
from tests.engines.faulty_network import CUT, TIME_OUT, Answer, FaultyNetwork, Moment, faulty_network

_SPEC = Path(__file__).parents[1] / "embedded" / "catalog" / "spec" / "unity-catalog-delta-v1.yaml"


def published_types() -> dict[str, int]:
    """DeltaErrorType of the published API, each type with its status."""
    schema = yaml.safe_load(_SPEC.read_text())["components"]["schemas"]["DeltaErrorType"]
    published = {line.partition(":")[0]: int(line.partition("(")[2][:3]) for line in schema["x-enum-descriptions"]}
    assert set(published) == set(schema["enum"])
    return published


def answer(status: int, body: object, **headers: str) -> Response:
    made = Response()
    made.status_code = status
    made._content = body if isinstance(body, bytes) else json.dumps(body).encode()
    made.headers.update(headers)
    return made


def error_of(response: Response) -> RatifyError:
    with pytest.raises(RatifyError) as raised:
        updated_table("http://c", "update a.b.c", response)
    return raised.value


def delta_error(type_: str, status: int) -> dict[str, Any]:
    return {"error": {"message": "published so", "type": type_, "code": status}}


@pytest.mark.parametrize(("type_", "status"), published_types().items())
def test_every_published_type(type_: str, status: int) -> None:
    wanted = {
        400: CatalogRejected,
        401: CatalogDenied,
        403: CatalogDenied,
        404: TableMissing,
        409: CommitConflict,
        429: CatalogBusy,
        500: CommitOutcomeUnknown,
        501: CatalogRejected,
    }[status]
    error = error_of(answer(status, delta_error(type_, status)))
    assert type(error) is wanted
    assert "update a.b.c" in str(error)
    assert "published so" in str(error)


@pytest.mark.parametrize(
    ("status", "likely"),
    [
        (401, CatalogDenied),
        (403, CatalogDenied),
        (404, TableMissing),
        (407, CatalogRejected),
        (409, CommitConflict),
        (429, CatalogBusy),
        (302, CatalogUnavailable),
        (500, CatalogUnavailable),
        (502, CatalogUnavailable),
        (503, CatalogBusy),
        (504, CatalogUnavailable),
    ],
)
@pytest.mark.parametrize(
    "body",
    [b"", b"<html>gateway</html>", b"\xff", [], "text", {"error": "text"}, {"error": {"type": "Odd", "message": "m"}}],
)
def test_what_has_no_such_type_is_unknown(status: int, likely: type[RatifyError], body: object) -> None:
    error = error_of(answer(status, body))
    assert type(error) is CommitOutcomeUnknown
    assert type(error.__cause__) is likely


def test_a_success_is_a_table() -> None:
    assert updated_table("http://c", "update", answer(200, {"metadata": {}, "commits": []})) == {
        "metadata": {},
        "commits": [],
    }
    for body in (b"", b"<html>login</html>", [], {}, "text"):
        assert type(error_of(answer(200, body)).__cause__) is CatalogUnavailable


def test_the_wait_that_a_busy_catalog_asks_for() -> None:
    published = delta_error("TooManyRequestsException", 429)
    waits = [error_of(answer(429, published, **{"Retry-After": after})) for after in ("7", "Wed, 21 Oct 2026 07:28:00 GMT")]
    assert [getattr(error, "retry_after", None) for error in waits] == [7, 0]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FaultyNetwork, TableClient, str]]:
    server = CatalogProcess.start(tmp_path_factory.mktemp("catalog"))
    with server.client() as api, faulty_network(server.url) as made:
        api.post("/schemas", json={"name": "s", "catalog_name": "ratify"}).raise_for_status()
        yield made, TableClient.create(api, "s", "t"), server.token
    assert server.stop() == 0


@pytest.mark.server
@pytest.mark.parametrize("spoiled", [200, 401, 403, 404, 409, 429, 500, 502, 503, CUT, TIME_OUT])
@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.LATE])
def test_one_call_sends_one_request(
    network: tuple[FaultyNetwork, TableClient, str], spoiled: Answer, moment: Moment
) -> None:
    faulty, table, token = network
    faulty.spoil(moment, then=spoiled)
    catalog = UnityCatalog(host=faulty.url, token=token, timeout_seconds=0.5 if spoiled == TIME_OUT else 30)
    requirements = [{"type": "assert-table-uuid", "uuid": table.table_id}]
    if spoiled == 200 and moment is Moment.BEFORE:
        assert catalog.update_table("ratify.s.t", requirements, [add_commit(1)])["commits"] == []
    else:
        with pytest.raises(RatifyError):
            catalog.update_table("ratify.s.t", requirements, [add_commit(1)])
    assert (faulty.requests, table.load()["latest-table-version"]) == (1, 0)
    faulty.late.clear()

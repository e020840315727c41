"""Who a client is: a catalog that does not answer is asked again."""

import socket
from pathlib import Path

import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from tests.embedded.catalog.harness import CatalogProcess

pytestmark = pytest.mark.server


def test_a_catalog_that_did_not_answer_is_asked_again(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    first = CatalogProcess.start(tmp_path, port=port)
    assert first.stop() == 0
    catalog = UnityCatalog(host=first.url, token=first.token, retry_seconds=1)
    assert catalog.principal() is None
    again = CatalogProcess.start(tmp_path, port=port)
    try:
        assert catalog.principal()
    finally:
        assert again.stop() == 0

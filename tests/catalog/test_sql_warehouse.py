"""Statements on a workspace, through the real SDK against a local server that speaks its endpoints."""

import datetime as dt
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from decimal import Decimal

import pytest

from ratify_lakehouse.catalog import sql_warehouse
from ratify_lakehouse.catalog.sql_warehouse import SqlWarehouse
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.errors import CatalogDenied, NotConfigured, StatementFailed, TableMissing
from ratify_lakehouse.settings import Settings
from tests.catalog.workspace_server import (
    CLIENT_ID,
    CLIENT_SECRET,
    WAREHOUSE,
    FakeWorkspace,
    failed,
    fake_workspace,
    state,
)


@pytest.fixture
def workspace(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeWorkspace]:
    with fake_workspace() as fake:
        monkeypatch.delenv("UNITY_TOKEN", raising=False)
        for name, value in (
            ("UNITY_HOST", fake.url),
            ("UNITY_CLIENT_ID", CLIENT_ID),
            ("UNITY_CLIENT_SECRET", CLIENT_SECRET),
            ("UNITY_WAREHOUSE_ID", WAREHOUSE),
        ):
            monkeypatch.setenv(name, value)
        yield fake


def warehouse(**more: object) -> SqlWarehouse:
    return SqlWarehouse(catalog=UnityCatalog(), **more)


def test_statements_run_one_after_the_other_by_one_token(workspace: FakeWorkspace) -> None:
    workspace.courses = {"SECOND": [state("PENDING"), state("RUNNING"), state("CLOSED")]}
    warehouse().run(["SELECT 'FIRST'", "SELECT 'SECOND'", "SELECT 'THIRD'"])
    assert workspace.statements == ["SELECT 'FIRST'", "SELECT 'SECOND'", "SELECT 'THIRD'"]
    assert (set(workspace.callers), len(workspace.tokens), workspace.cancelled) == ({CLIENT_ID}, 1, [])


def test_rows_come_in_chunks_with_the_types_of_python(workspace: FakeWorkspace) -> None:
    types = ("BIGINT", "DECIMAL(4,2)", "BOOLEAN", "TIMESTAMP", "MAP<STRING,STRING>", "STRING", "DOUBLE")
    texts = ("1", "1.20", "true", "2026-01-02T03:04:05.000Z", '{"a":"b"}', "1", "0.5")
    columns = [{"name": f"c{place}", "type_text": text, "position": place} for place, text in enumerate(types)]
    chunks = [{"data_array": [texts], "next_chunk_index": 1}, {"data_array": [[None] * len(types)]}]
    workspace.courses = {
        "SELECT": [
            state("RUNNING"),
            {**state("SUCCEEDED"), "manifest": {"schema": {"columns": columns}}, "result": chunks[0], "chunks": chunks},
        ]
    }
    first, second = warehouse().rows("SELECT :a, :b", {"a": "x", "b": None})
    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert tuple(first.values()) == (1, Decimal("1.20"), True, at, {"a": "b"}, "1", 0.5)
    assert set(second.values()) == {None}
    assert workspace.parameters == [{"a": "x", "b": None}]


def test_a_failure_names_the_statement_and_the_error_of_the_workspace(workspace: FakeWorkspace) -> None:
    message = "[TABLE_OR_VIEW_NOT_FOUND] The table or view `samples`.`tpch`.`part` cannot be found."
    workspace.courses = {"part": [state("RUNNING"), failed(message, sql_state="42P01")]}
    with pytest.raises(StatementFailed) as error:
        warehouse().run(["SELECT 1", "CREATE TABLE part\nAS SELECT 1", "SELECT 3"])
    assert str(error.value) == (
        f"The workspace could not run statement 2 of 3 (CREATE TABLE part): {message} (BAD_REQUEST, SQLSTATE 42P01)"
    )
    assert len(workspace.statements) == 2


def test_a_statement_that_somebody_cancelled(workspace: FakeWorkspace) -> None:
    workspace.courses = {"SELECT": [state("CANCELED")]}
    with pytest.raises(StatementFailed, match=r"statement 1 of 1 \(SELECT 1\): it ended as CANCELED"):
        warehouse().run(["SELECT 1"])


def test_a_statement_that_does_not_end_is_cancelled(workspace: FakeWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_warehouse, "_PATIENCE_S", 0.5)
    workspace.courses = {"slow": [state("RUNNING")]}
    with pytest.raises(StatementFailed, match=r"did not end statement 1 of 2 \(SELECT slow\) within 0.5 s"):
        warehouse().run(["SELECT slow", "SELECT 2"])
    assert (workspace.statements, workspace.cancelled) == (["SELECT slow"], [0])


@pytest.mark.parametrize("replied", [True, False], ids=["after the reply", "before the reply"])
def test_ctrl_c_cancels_the_statement_that_runs(workspace: FakeWorkspace, *, replied: bool) -> None:
    workspace.courses = {"slow": [state("RUNNING")]}
    workspace.reply_delay = 0 if replied else 0.5

    def interrupt() -> None:
        while not (1 in workspace.followed if replied else len(workspace.statements) == 2):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        warehouse().run(["SELECT 1", "SELECT slow", "SELECT 3"])
    thread.join()
    assert (len(workspace.statements), workspace.cancelled) == (2, [1])


def test_a_token_that_expires_while_a_statement_runs_is_renewed(workspace: FakeWorkspace) -> None:
    # databricks-sdk renews a token 40 s before its end: of this one, after the first second.
    workspace.life, workspace.expires_in = 1.5, 41
    workspace.courses = {"slow": [*[state("RUNNING")] * 4, state("SUCCEEDED")]}
    begun = time.monotonic()
    warehouse().run(["SELECT slow", "SELECT 2"])
    assert time.monotonic() - begun > workspace.life
    assert (len(workspace.tokens) > 1, workspace.refused, workspace.cancelled) == (True, 0, [])


def test_a_token_that_is_refused_while_a_statement_runs(workspace: FakeWorkspace, caplog: pytest.LogCaptureFixture) -> None:
    workspace.life = 1.5
    workspace.courses = {"slow": [state("RUNNING")]}
    with caplog.at_level(logging.WARNING), pytest.raises(CatalogDenied, match="refused to follow statement 1 of 1") as error:
        warehouse().run(["SELECT slow"])
    assert "refused to cancel statement 1 of 1" in caplog.text
    for secret in (*workspace.tokens, CLIENT_SECRET):
        assert secret not in str(error.value) + caplog.text


def test_a_wrong_secret(workspace: FakeWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNITY_CLIENT_SECRET", "wr0ng")
    message = r"gave no token to begin statement 1 of 1 .*invalid_client.*Check UNITY_CLIENT_ID and UNITY_CLIENT_SECRET"
    with pytest.raises(CatalogDenied, match=message) as error:
        warehouse().run(["SELECT 1"])
    assert "wr0ng" not in str(error.value)
    assert workspace.statements == []


def test_no_warehouse_and_one_that_does_not_exist(workspace: FakeWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TableMissing, match="SQL warehouse nope does not exist"):
        warehouse(warehouse_id="nope").run(["SELECT 1"])
    monkeypatch.delenv("UNITY_WAREHOUSE_ID")
    assert Settings().warehouse is None
    with pytest.raises(NotConfigured, match="set UNITY_WAREHOUSE_ID"):
        warehouse().run(["SELECT 1"])


def test_a_warehouse_without_a_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNITY_HOST", raising=False)
    monkeypatch.setenv("UNITY_WAREHOUSE_ID", WAREHOUSE)
    with pytest.raises(NotConfigured, match="UNITY_HOST is not"):
        _ = Settings().warehouse

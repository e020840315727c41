"""The `ratify` command as a person types it, on a running stack; tests/cli/test_cli.py has it without one."""

import json
from pathlib import Path

import pytest

from tests.cli.ratify_command import invoke, ratify
from tests.smoke.conftest import Smoke

pytestmark = [
    pytest.mark.server,
    pytest.mark.stack,
    pytest.mark.usefixtures("only_session"),
    pytest.mark.one_process("smoke"),
]


def test_up_says_where_it_runs_and_so_does_status(smoke: Smoke) -> None:
    shown = json.loads(ratify(smoke.home, "status", "--json").stdout)
    assert set(shown["catalog"]) >= {"url", "name", "token_file", "pid"}
    assert set(shown["spark"]) >= {"remote", "pid"}
    assert shown["kafka"] is None
    assert f"catalog {shown['catalog']['url']} (ratify), Spark {shown['spark']['remote']}" in smoke.printed
    assert Path(shown["catalog"]["token_file"]).stat().st_mode & 0o777 == 0o600
    again = ratify(smoke.home, "up")
    assert again.returncode == 0
    assert shown["spark"]["remote"] in again.stdout


def test_sql_of_both_engines(smoke: Smoke) -> None:
    home = smoke.home
    # Of a catalog that has no schema yet.
    assert "12345" in invoke(home, "sql", "SELECT 12345 AS id", "--engine", "duckdb").stdout
    created = "CREATE TABLE typed.t (id BIGINT) USING DELTA TBLPROPERTIES ('delta.columnMapping.mode'='none')"
    for statement in ("CREATE SCHEMA IF NOT EXISTS typed", created, "INSERT INTO typed.t VALUES (1), (2)"):
        assert invoke(home, "sql", statement).returncode == 0, statement
    assert invoke(home, "sql", "INSERT INTO uc.typed.t VALUES (3)", "--engine", "duckdb").returncode == 0
    for engine, type_ in {"spark": "TIMESTAMP", "duckdb": "TIMESTAMPTZ"}.items():
        query = f"SELECT sum(id) AS total, {type_} '2026-01-01 12:00:00Z' AS at FROM typed.t"
        asked = ratify(home, "sql", query, "--json", "--engine", engine, TZ="America/New_York")
        assert json.loads(asked.stdout) == [{"total": 6, "at": "2026-01-01 12:00:00+00:00"}], engine
    assert invoke(home, "sql", "SELECT 12345 AS id").stdout.splitlines()[0].strip() == "1 row"


def test_the_history_of_a_table_and_what_is_acknowledged_in_it(smoke: Smoke) -> None:
    home = smoke.home
    commits = json.loads(invoke(home, "history", "typed.t", "--json").stdout)
    assert [(c["version"], c["engine"]) for c in commits] == [(2, "DuckDB"), (1, "Spark"), (0, "Spark")]
    assert "give the reason" in invoke(home, "acknowledge", "typed.t", "2").stderr
    (made,) = json.loads(invoke(home, "acknowledge", "typed.t", "2", "--reason", "by hand", "--json").stdout)
    assert (made["version"], made["operation"], made["engine"], made["reason"]) == (2, "UNKNOWN", "DuckDB", "by hand")
    assert json.loads(invoke(home, "acknowledge", "typed.t", "--json").stdout) == [made]


def test_what_is_wrong_with_a_query_or_a_name_is_said_in_a_sentence(smoke: Smoke) -> None:
    wrong = invoke(smoke.home, "sql", "SELECT [id] FROM typed.t")
    assert wrong.returncode == 1
    assert "QueryFailed: [PARSE_SYNTAX_ERROR]" in wrong.stderr
    assert "SELECT [id]" in wrong.stderr
    assert "org.apache.spark" not in wrong.stderr
    # A process: PySpark logs to the standard error stream that it has found at its start.
    wrong = ratify(smoke.home, "sql", "SELECT idd FROM VALUES (1) AS t (id)")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("QueryFailed: [UNRESOLVED_COLUMN"), wrong.stderr
    assert len(wrong.stderr.splitlines()) < 10, wrong.stderr
    for missing in ("typed.tt", "t"):
        unknown = invoke(smoke.home, "history", missing)
        assert unknown.returncode == 1
        # A sentence, however wide the terminal is that pytest was started in.
        assert unknown.stderr.startswith("TableMissing: "), unknown.stderr
        assert len(unknown.stderr) < 300, unknown.stderr

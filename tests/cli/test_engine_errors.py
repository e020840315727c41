"""What an engine says, and nobody has translated, is one line on the terminal; and names of tables are checked before."""

import duckdb
import pytest
import typer
from pyspark.errors.exceptions.connect import AnalysisException, SparkConnectGrpcException
from typer.testing import CliRunner

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.cli import main
from ratify_lakehouse.cli.access_commands import NotUnderstood, _securable
from ratify_lakehouse.cli.engine_session import full_name
from ratify_lakehouse.cli.lineage_command import _key
from ratify_lakehouse.engine_errors import engine_of, engine_sentence
from ratify_lakehouse.errors import TableMissing

_STACK = (
    "org.apache.spark.sql.AnalysisException\n\tat org.apache.spark.sql.Dataset.ofRows(Dataset.scala:98)\n\tat x.Y.z(Y.java)"
)
_AFTER = "Correct what this names, and run the command again."


def spark_error(kind: type[SparkConnectGrpcException], message: str) -> SparkConnectGrpcException:
    return kind(message=message, server_stacktrace=_STACK, display_server_stacktrace=True)


def duckdb_error(statement: str) -> duckdb.Error:
    with pytest.raises(duckdb.Error) as raised:
        duckdb.sql(statement)
    return raised.value


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            spark_error(AnalysisException, "[TABLE_OR_VIEW_NOT_FOUND] `a` is missing. SQLSTATE: 42P01; line 1 pos 14;\n"
                        "'Project [*]\n+- 'UnresolvedRelation [a], [], false\n"),
            "[TABLE_OR_VIEW_NOT_FOUND] `a` is missing. SQLSTATE: 42P01; line 1 pos 14",
        ),
        (
            spark_error(SparkConnectGrpcException, "[PARSE_SYNTAX_ERROR] Syntax error at or near '.'. SQLSTATE: 42601 "
                        "(line 1, pos 16)\n\n== SQL ==\nSELECT * FROM a...b\n----------------^^^\n"),
            "[PARSE_SYNTAX_ERROR] Syntax error at or near '.'. SQLSTATE: 42601 (line 1, pos 16)",
        ),
        (
            spark_error(SparkConnectGrpcException, "(java.io.IOException) File name too long: p=xxx\n\tat a.B.c(B.java:1)"),
            "(java.io.IOException) File name too long: p=xxx",
        ),
        (spark_error(SparkConnectGrpcException, "one\n  two"), "one two"),
        (spark_error(SparkConnectGrpcException, ""), "SparkConnectGrpcException"),
        (duckdb_error("SELECT * FROM a...b"), 'Parser Error: syntax error at or near ".."'),
        (duckdb_error("SELECT 1/x"), 'Binder Error: Referenced column "x" was not found because the FROM clause is missing'),
    ],
)  # fmt: skip
def test_it_is_one_line(error: Exception, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine_sentence(error) == f"{line}. {_AFTER}"
    app = typer.Typer(cls=main.CommandGroup)

    @app.command("run")
    def run() -> None:
        raise error

    app.callback()(lambda: None)
    done = CliRunner().invoke(app, ["run"])
    assert (done.exit_code, type(done.exception)) == (1, SystemExit)
    assert " ".join(done.stderr.split()) == f"{engine_of(error)}: {line}. {_AFTER}"


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    assert engine_of(ValueError("x")) == ""


def test_a_long_text_is_cut() -> None:
    found = engine_sentence(spark_error(SparkConnectGrpcException, "value " + "x" * 5000))
    assert len(found) < 1100


@pytest.mark.parametrize("name", ["a...b", "a..b", ".a", "a.", "..", "a", "", "a.b.c.d", "a. .c"])
def test_a_name_that_is_no_tables_is_refused_before_an_engine_sees_it(name: str) -> None:
    with pytest.raises(TableMissing, match=r"is not a table name: write schema\.table or catalog\.schema\.table"):
        full_name(UnityCatalog(host="http://127.0.0.1:9", name="main", token="t"), name)
    with pytest.raises(TableMissing, match="is not a table name"):
        _key(name, "main")


@pytest.mark.parametrize("name", ["a..b", ".a", "a.", "..", ""])
def test_a_name_that_is_no_securables_is_refused(name: str) -> None:
    with pytest.raises(NotUnderstood, match="is not a catalog"):
        _securable(None, name)

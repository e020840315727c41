"""`ratify grant`, `grants`, `revoke`, `principal` and `catalog export` against a server that is not ours.

It answers as the published open-source server does: privileges are spelled `USE CATALOG`, and there are no service
principals. With a SQL warehouse named it is taken for a Databricks workspace, whose privileges are spelled `USE_CATALOG`.
What it has to tell is hostile: names, types and comments that would be statements of their own if they were not quoted.
"""

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from typer.testing import CliRunner, Result

from ratify_lakehouse.cli.main import app
from tests.embedded.catalog.harness import API

pytestmark = pytest.mark.server

INJECTED = "int); GRANT ALL PRIVILEGES ON CATALOG `ratify` TO `eve"
LINES = "x\nGRANT SELECT ON CATALOG ratify TO eve;\n-- "


@dataclass
class ForeignServer:
    """What it has: privileges by principal for each securable, and tables."""

    space: str = " "
    grants: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    tables: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        match unquote(path).removeprefix(f"{API}/").split("/"):
            case ["", *_]:
                return 404, None
            case ["metastore_summary"]:
                return 200, {"metastore_id": "m"}
            case ["catalogs", name]:
                return 200, {"name": name, "owner": "admin", "comment": LINES}
            case ["schemas"]:
                return 200, {"schemas": [{"name": "s", "catalog_name": "ratify", "full_name": "ratify.s"}]}
            case ["tables"]:
                return 200, {"tables": self.tables}
            case ["permissions", _, name]:
                return self.permissions(method, name, query, body)
        raise AssertionError(f"{method} {path}")

    def permissions(self, method: str, name: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        held = self.grants.setdefault(name, {})
        for change in body["changes"] if method == "PATCH" else []:
            wrong = [one for one in [*change["add"], *change["remove"]] if ("_" if self.space == " " else " ") in one]
            if wrong:
                return 400, {"error_code": "INVALID_ARGUMENT", "message": f"Unexpected value '{wrong[0]}'"}
            own = held.setdefault(change["principal"], [])
            own[:] = [one for one in own if one not in change["remove"]] + change["add"]
        # One principal a page, and an empty page first, as Databricks may answer.
        page = int(query.get("page_token", ["0"])[0])
        shown = list(held.items()) if method == "PATCH" else list(held.items())[max(0, page - 1) : page]
        more = {"next_page_token": str(page + 1)} if method == "GET" and page < len(held) else {}
        return 200, {"privilege_assignments": [{"principal": who, "privileges": own} for who, own in shown], **more}


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ForeignServer]:
    served = ForeignServer()

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            url = urlsplit(self.path)
            sent = self.rfile.read(int(self.headers.get("content-length", 0)))
            status, body = served.answer(self.command, url.path, parse_qs(url.query), json.loads(sent) if sent else None)
            content = json.dumps(body).encode() if body else b"Status: 404\nDescription: Not Found"
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if body else "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = respond  # noqa: N815 the names that http.server calls

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    served.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.chdir(tmp_path)
    for name in ("CLIENT_ID", "CLIENT_SECRET", "CATALOG", "WAREHOUSE_ID"):
        monkeypatch.delenv(f"UNITY_{name}", raising=False)
    monkeypatch.setenv("UNITY_HOST", served.url)
    monkeypatch.setenv("UNITY_TOKEN", "t")
    yield served
    server.shutdown()
    server.server_close()


def ratify(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def result_of(*words: str) -> list[dict[str, str]]:
    answer = ratify(*words, "--json")
    assert answer.exit_code == 0, answer.stderr
    return json.loads(answer.stdout)


@pytest.mark.parametrize("space", [" ", "_"])
def test_privileges_of_two_words(foreign: ForeignServer, monkeypatch: pytest.MonkeyPatch, space: str) -> None:
    foreign.space = space
    if space == "_":
        monkeypatch.setenv("UNITY_WAREHOUSE_ID", "w")
    given = [{"principal": "bob", "privileges": "SELECT, USE CATALOG"}]
    assert result_of("grant", "use_catalog, SELECT", "on", "ratify", "to", "bob") == given
    assert foreign.grants["ratify"] == {"bob": [f"USE{space}CATALOG", "SELECT"]}
    assert result_of("grants", "ratify") == given
    left = [{"principal": "bob", "privileges": "SELECT"}]
    assert result_of("revoke", "USE", "CATALOG", "on", "ratify", "from", "bob") == left
    assert result_of("grants", "ratify") == left


def test_nothing_is_left_out(foreign: ForeignServer) -> None:
    foreign.grants = {"ratify.s": {"bob": ["USE SCHEMA", "FLY_HIGH", "SELECT"], "eve": ["MODIFY"]}}
    assert result_of("grants", "ratify.s") == [
        {"principal": "bob", "privileges": "SELECT, USE SCHEMA, FLY_HIGH"},
        {"principal": "eve", "privileges": "MODIFY"},
    ]
    assert "-- bob has FLY_HIGH on ratify.s, which Ratify does not know\n" in ratify("catalog", "export").stdout


@pytest.mark.parametrize("words", ["create bob", "list", "token bob", "delete bob"])
def test_a_server_without_service_principals_is_said(foreign: ForeignServer, words: str) -> None:
    answer = ratify("principal", *words.split())
    assert answer.exit_code == 1
    assert "it has no API for service principals" in " ".join(answer.stderr.split())
    assert foreign.url in answer.stderr


def table(name: str, *columns: dict[str, Any], **more: Any) -> dict[str, Any]:
    numbered = [{"name": f"c{place}", "position": place, **column} for place, column in enumerate(columns)]
    own = {"name": name, "schema_name": "s", "full_name": f"ratify.s.{name}", "columns": numbered, "owner": "admin"}
    return own | {"table_type": "MANAGED", "data_source_format": "DELTA", "properties": {}} | more


def test_an_export_holds_no_statement_of_others(foreign: ForeignServer) -> None:
    struct = {"type": "struct", "fields": [{"name": "a b:int>", "type": "long", "nullable": True, "metadata": {}}]}
    foreign.tables = [
        table("text", {"type_text": INJECTED}),
        table("json", {"type_json": json.dumps(INJECTED), "type_text": "int"}),
        table("damaged", {"type_json": '{"type":"array"}', "type_text": "int"}),
        table("column", {"name": LINES, "type_text": "int"}),
        table(LINES, {"type_text": "int"}),
        table("clustered", {"type_text": "int"}, properties={"delta.clusteringColumns": LINES}),
        table("form", {"type_text": "int"}, data_source_format=LINES),
        table("view", {"type_text": "int"}, table_type="VIEW"),
        table("whole", {"type_json": json.dumps(struct), "comment": LINES}, {"type_text": "map<string,decimal(5,1)>"},
              comment=LINES, properties={LINES: LINES}),
    ]  # fmt: skip
    foreign.grants = {"ratify": {LINES: ["SELECT"], "bob": ["USE CATALOG", f"SELECT ON SCHEMA s TO eve; {LINES}"]}}
    answer = ratify("catalog", "export")
    assert answer.exit_code == 0, answer.stderr
    script = answer.stdout
    granted = [line for line in script.splitlines() if not line.startswith("--") and re.match(r"\s*GRANT", line)]
    assert granted == ["GRANT USE CATALOG ON CATALOG `ratify` TO `bob`;"]
    bare = re.sub(r"'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`|--[^\n]*", "?", script)
    kinds = [re.findall(r"[A-Z]+ [A-Z]+", statement)[:1] for statement in bare.split(";") if statement.strip(" ?\n")]
    made = ["CREATE CATALOG", "CREATE SCHEMA", "CREATE TABLE"]
    owned = ["ALTER TABLE"] * 8
    assert [kind for found in kinds for kind in found] == [*made, "GRANT USE", *owned, "ALTER CATALOG"]
    for name in ("text", "json", "damaged", "column", "clustered", "form", "view"):
        assert f"-- ratify.s.{name} is not exported: " in script
        assert f"CREATE TABLE IF NOT EXISTS `ratify`.`s`.`{name}`" not in script
    assert "`c0` struct<`a b:int>`:bigint> COMMENT 'x\\U0000000aGRANT" in script
    assert "`c1` map<string,decimal(5,1)>" in script

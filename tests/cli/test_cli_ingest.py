"""`ratify ingest` as a person types it: what is loaded, skipped and refused, and what Ctrl-C and a kill leave behind."""

import json
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.conftest import LoadTarget
from tests.cli.ratify_command import RATIFY, environment, invoke, ratify
from tests.embedded.catalog.harness import READ, ClientPrincipal

pytestmark = pytest.mark.stack

HEADER = "code,name\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder outside of the landing zone."""
    folder = tmp_path / "files"
    (folder / "deep").mkdir(parents=True)
    return folder


def put(folder: Path, *names: str) -> list[str]:
    """Files of one row each, whose `name` is their own; returns their names."""
    for name in names:
        (folder / f"{name}.csv").write_text(f"{HEADER}XX,{name}\n")
    return list(names)


def command(*paths: object, writers: int = 2) -> list[str]:
    return ["ingest", *map(str, paths), "--table", "bronze.products", "--writers", str(writers), "--json"]


def ingested(target: LoadTarget, home: Path, *paths: object) -> tuple[int, dict[str, Any]]:
    """The exit code, and the report."""
    asked = ratify(home, *command(*paths), **target.environment)
    assert asked.stdout, asked.stderr
    return asked.returncode, json.loads(asked.stdout)


def numbers(report: dict[str, Any]) -> dict[str, int]:
    return {name: report[name] for name in ("files", "loaded", "rows", "skipped", "files refused", "not begun")}


def test_files_are_loaded_once_and_skipped_after_that(target: LoadTarget, files: Path, tmp_path: Path) -> None:
    names = put(files, *(f"n{number:02}" for number in range(8)))
    (files / "deep" / "again.csv").write_bytes((files / "n00.csv").read_bytes())
    code, report = ingested(target, tmp_path, files, files / "n0*.csv", f"{files}/../files/n01.csv", files.as_uri())
    assert code == 0
    # `again` and `n00` have the same bytes: which of them is loaded is a matter of who comes first.
    assert numbers(report) == {"files": 9, "loaded": 8, "rows": 8, "skipped": 1, "files refused": 0, "not begun": 0}
    assert target.names() == dict.fromkeys(names, 1)
    assert len(target.ledger()) == 9
    paths = target.rows("SELECT DISTINCT _source_file[:7] FROM uc.bronze.products")
    assert paths == [("file://",)]

    put(files, "n08")
    code, report = ingested(target, tmp_path, files)
    assert code == 0
    assert numbers(report) == {"files": 10, "loaded": 1, "rows": 1, "skipped": 9, "files refused": 0, "not begun": 0}
    assert target.names() == dict.fromkeys([*names, "n08"], 1)


def test_a_file_that_is_refused_is_reported_each_time(target: LoadTarget, files: Path, tmp_path: Path) -> None:
    put(files, "good")
    (files / "cut.csv").write_text(f"{HEADER}XX,cu")
    for loaded in (1, 0):
        code, report = ingested(target, tmp_path, files)
        assert (code, report["loaded"], report["skipped"], report["files refused"]) == (1, loaded, 1 - loaded, 1)
        (refused,) = report["refused"]
        assert refused["file"] == (files / "cut.csv").as_uri()
        assert "cut off" in refused["reason"]
    assert target.ledger() == {"good.csv": ("loaded", 1), "cut.csv": ("refused", 0)}


def test_the_landing_zone_s_files_keep_their_names(target: LoadTarget, tmp_path: Path) -> None:
    folder = tmp_path / "landing" / "reference"
    folder.mkdir(parents=True)
    put(folder, "products")
    assert ingested(target, tmp_path, folder)[0] == 0
    assert target.rows("SELECT _source_file FROM uc.bronze.products") == [("reference/products.csv",)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.csv", "--table", "bronze.products"), "check the name"),
        (("nothing.csv", "--table", "bronze.other"), "check the name"),
    ],
)
def test_what_is_missing_is_named(target: LoadTarget, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    asked = invoke(tmp_path, "ingest", *arguments, **target.environment)
    assert asked.returncode == 1
    assert message in " ".join(asked.stderr.split())
    assert "Traceback" not in asked.stderr


@pytest.mark.long
def test_a_terminal_gets_a_bar_and_a_table(target: LoadTarget, files: Path, tmp_path: Path) -> None:
    put(files, "one", "two")
    ours, theirs = pty.openpty()
    words = [RATIFY, *command(files)[:-1]]
    process = subprocess.Popen(words, env=environment(tmp_path, **target.environment), stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # The terminal's end.
        pass
    os.close(ours)
    assert process.wait(10) == 0, shown
    assert "━" in shown.decode()
    assert b"2/2" in shown
    assert b"Ingested into bronze.products" in shown


class Started:
    """A command that is at work on many files."""

    def __init__(self, target: LoadTarget, folder: Path, home: Path) -> None:
        self.names = put(folder, *(f"n{number:03}" for number in range(600)))
        self.process = subprocess.Popen(
            [RATIFY, *command(folder)],
            env=environment(home, **target.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.family: list[psutil.Process] = []

    def until_a_batch_is_in(self) -> None:
        for line in self.process.stderr:
            if "of 600 files" in line:
                break
        command = psutil.Process(self.process.pid)
        self.family = [command, *command.children(recursive=True)]

    def assert_gone(self) -> None:
        _, alive = psutil.wait_procs(self.family, timeout=20)
        assert not alive


@pytest.mark.long
def test_after_an_interrupt_what_is_reported_is_what_is_in(target: LoadTarget, files: Path, tmp_path: Path) -> None:
    started = Started(target, files, tmp_path)
    started.until_a_batch_is_in()
    # As the terminal does: to the command and to all that it started.
    os.killpg(started.process.pid, signal.SIGINT)
    out, err = started.process.communicate(timeout=60)
    report = json.loads(out)
    assert started.process.returncode == 130
    assert report["interrupted"] is True
    assert "Traceback" not in err
    assert 0 < report["loaded"] < 600
    assert report["not begun"] == 600 - report["loaded"]
    assert sum(target.names().values()) == report["rows"] == len(target.ledger())
    started.assert_gone()

    code, again = ingested(target, tmp_path, files)
    assert (code, again["skipped"], again["loaded"]) == (0, report["loaded"], report["not begun"])
    assert target.names() == dict.fromkeys(started.names, 1)


@pytest.mark.long
def test_a_command_that_is_killed_is_made_good_by_the_next(target: LoadTarget, files: Path, tmp_path: Path) -> None:
    started = Started(target, files, tmp_path)
    started.until_a_batch_is_in()
    started.process.kill()
    started.process.communicate()
    started.assert_gone()
    code, _ = ingested(target, tmp_path, files)
    assert code == 0
    assert target.names() == dict.fromkeys(started.names, 1)
    assert target.ledger() == {f"{name}.csv": ("loaded", 1) for name in started.names}


@pytest.mark.long
def test_a_batch_that_fails_ends_it(target: LoadTarget, files: Path, tmp_path: Path) -> None:
    """With a token that may read and not write: no batch is begun after the first that failed."""
    put(files, *(f"n{number:03}" for number in range(200)))
    with target.server.client() as admin:
        reader = ClientPrincipal.create(admin, *READ).token()
    asked = ratify(tmp_path, *command(files), **{**target.environment, "UNITY_TOKEN": reader})
    report = json.loads(asked.stdout)
    assert asked.returncode == 1
    assert report["failed"].startswith("CatalogDenied")
    assert (report["loaded"], report["not begun"], report["interrupted"]) == (0, 200, False)
    assert "Traceback" not in asked.stderr
    assert target.names() == {}

"""docs/tutorial.md, word for word: every block of the page is run or written, in order, and the UI shows what it says."""

import json
import re
import shlex
import signal
import subprocess
import time
import urllib.request
from collections.abc import Generator, Iterator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect

from tests.browser_page import browser_page
from tests.orchestration.new_projects import FAMILY, shell_environment, use_this_environment
from tests.sample.test_ui import free_port

pytestmark = [pytest.mark.server, pytest.mark.browser]

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?:#|--) (my_lake/\S+)\n")
SCAFFOLDED = "my_lake/bronze/orders/defs.yaml"
"""The page shows what a command has written, and the reader leaves it as it is."""
PATIENCE_S = 300


class Reader:
    """Somebody who follows the page, from a clone at a path with a space and an umlaut."""

    def __init__(self, folder: Path) -> None:
        self.cwd = folder / "söme where" / "ratify"
        self.cwd.mkdir(parents=True)
        (self.cwd / ".venv").symlink_to(FAMILY)
        self.printed = dict[str, str]()

    @property
    def project(self) -> Path:
        return self.cwd.parent / "my-lake"

    def run(self, block: str) -> None:
        where = self.cwd / "cwd"
        script = f"set -e\n{block}\npwd > {shlex.quote(str(where))}"
        shell = ["bash", "-c", script]
        env = shell_environment()
        done = subprocess.run(shell, cwd=self.cwd, env=env, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        self.printed[block.strip()] = done.stdout
        self.cwd = Path(where.read_text().strip())
        where.unlink()

    def write(self, path: str, text: str) -> None:
        # `dg scaffold defs` has made it: the page says which command does.
        file = self.project / path
        assert file.exists() or file.parent.exists(), f"{path} is written, but no command has made its folder"
        file.write_text(text)


def test_its_files_are_few_and_short() -> None:
    files = {match[1]: text for _, text in BLOCKS if (match := FILE.match(text))}
    assert SCAFFOLDED in files
    written = [Path(name).suffix for name in files if name != SCAFFOLDED]
    assert sorted(written) == [".sql", ".sql", ".yaml", ".yaml"]
    assert sum(len(text.splitlines()) for text in files.values()) <= 40


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, jars_dir: Path) -> Reader:
    """Having read the page up to `make dev`."""
    reader = Reader(tmp_path_factory.mktemp("tutorial"))
    for kind, block in BLOCKS:
        if match := FILE.match(block):
            if match[1] == SCAFFOLDED:
                assert (reader.project / match[1]).read_text().split() == block.split("\n", 1)[1].split()
            else:
                reader.write(match[1], block)
        elif kind == "sh" and block.strip() == "make dev":
            break
        elif kind == "sh":
            if block.strip() == "make setup":
                use_this_environment(reader.cwd, jars_dir)
            reader.run(block)
    return reader


def test_the_commands_print_what_the_page_says(reader: Reader) -> None:
    shown = reader.printed["make demo"]
    rows = {line.split()[1]: line.split()[3] for line in shown.splitlines() if "│ ratify." in line}
    wanted = {"bronze.orders": "3", "silver.orders": "2", "silver.orders_quarantine": "1", "gold.sales": "1"}
    assert {f"ratify.{name}": count for name, count in wanted.items()}.items() <= rows.items(), shown
    (looked,) = [text for block, text in reader.printed.items() if "SELECT rule" in block]
    assert "amount_is_positive" in looked
    assert '"customer":"Cid"' in looked.replace(" ", "")
    assert "5.50" in looked


@pytest.fixture(scope="module")
def ui(reader: Reader) -> Iterator[str]:
    port = free_port()
    log = reader.cwd / "dev.log"
    with log.open("w") as out:
        dev = subprocess.Popen(
            ["make", "dev", f"PORT={port}"], cwd=reader.cwd, env=shell_environment(), stdout=out, stderr=out, process_group=0
        )
        try:
            deadline = time.monotonic() + PATIENCE_S
            while "Dagster UI on" not in log.read_text():
                assert dev.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}"
        finally:
            # As Ctrl-C in a terminal does.
            psutil.Process(dev.pid).children()[0].send_signal(signal.SIGINT)
            dev.wait(90)


@pytest.fixture(scope="module")
def page() -> Generator[Page]:
    with browser_page() as page:
        page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        yield page


# tests/sample/test_ui.py has the pages and sensors of the sample's tables.
@pytest.mark.long
def test_the_ui_shows_the_tables(ui: str, page: Page, tmp_path: Path) -> None:
    page.goto(f"{ui}/assets/ratify/gold/sales?view=lineage")
    for name in ("orders", "sales", "Spark"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    page.goto(f"{ui}/assets/ratify/silver/orders")
    expect(page.get_by_text("In euros").first).to_be_visible()
    expect(page.get_by_text("bronze.orders.customer_name").first).to_be_visible()
    expect(page.get_by_role("columnheader", name="amount")).to_be_visible()
    expect(page.get_by_role("columnheader", name="customer")).to_have_count(0)


@pytest.mark.long
def test_a_file_that_lands_reaches_gold_by_itself(ui: str, reader: Reader) -> None:
    tuesday = "Order ID,Customer Name,Amount (EUR),Placed At\n4,Dee,4.00,2026-01-06 18:00\n"
    (reader.cwd / ".ratify/landing/till/tuesday.csv").write_text(tuesday)
    deadline = time.monotonic() + PATIENCE_S
    while rows_of(ui, "gold", "sales") != 2:
        assert time.monotonic() < deadline, ui
        time.sleep(2)


def rows_of(ui: str, schema: str, table: str) -> int | None:
    """The rows that the table's page shows."""
    entries = "metadataEntries {label ... on IntMetadataEntry {intValue}}"
    body = json.dumps({"query": f"{{assetNodes {{assetKey {{path}} assetMaterializations(limit: 1) {{{entries}}}}}}}"})
    request = urllib.request.Request(f"{ui}/graphql", body.encode(), {"content-type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        nodes = json.load(answer)["data"]["assetNodes"]
    (made,) = [node["assetMaterializations"] for node in nodes if node["assetKey"]["path"][1:] == [schema, table]]
    counts = [e["intValue"] for each in made for e in each["metadataEntries"] if e["label"] == "dagster/row_count"]
    return counts[0] if counts else None

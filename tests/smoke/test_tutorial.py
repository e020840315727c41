"""docs/tutorial.md, word for word: every block of the page is run or written, in order, and the UI shows what it says.

The shell names the smoke stack; in the long form, the project has a stack of its own.
"""

import shlex
import signal
import subprocess
from collections.abc import Generator, Iterator, Mapping
from itertools import takewhile
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect

from tests.browser_page import browser_page
from tests.cli.new_projects import FAMILY, shell_environment, use_this_environment
from tests.dev_server import Dev
from tests.page_reader import FencedBlock, following
from tests.smoke.conftest import Smoke

pytestmark = [pytest.mark.server, pytest.mark.stack, pytest.mark.one_process("smoke")]

BEFORE_DEV = list(takewhile(lambda each: each.commands != ["make dev"], following("docs/tutorial.md")))
SCAFFOLDED = "assets/bronze/orders/defs.yaml"
"""The page shows what a command has written, and the reader leaves it as it is."""


class Reader:
    """Somebody who follows the page, from a clone at a path with a space and an umlaut."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.environ = environ
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
        done = subprocess.run(
            shell, cwd=self.cwd, env=self.environ, capture_output=True, text=True, timeout=600, check=False
        )
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
    files = {block.file: block.text for block in BEFORE_DEV if block.file}
    assert SCAFFOLDED in files
    written = [Path(name).suffix for name in files if name != SCAFFOLDED]
    assert sorted(written) == [".sql", ".sql", ".yaml", ".yaml"]
    assert sum(len(text.splitlines()) for text in files.values()) <= 40


@pytest.fixture(scope="module", params=["the smoke stack", pytest.param("its own stack", marks=pytest.mark.long)])
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Somebody at the top of the page, who then reads block after block."""
    environ = shell_environment()
    if request.param == "the smoke stack":
        smoke: Smoke = request.getfixturevalue("smoke")
        environ |= smoke.shell
    return Reader(tmp_path_factory.mktemp("tutorial"), environ)


@pytest.mark.parametrize("block", BEFORE_DEV, ids=[block.text.partition("\n")[0] for block in BEFORE_DEV])
def test_a_block_of_the_page(reader: Reader, block: FencedBlock) -> None:
    if block.file == SCAFFOLDED:
        assert (reader.project / block.file).read_text().split() == block.text.split("\n", 1)[1].split()
    elif block.file:
        reader.write(block.file, block.text)
    else:
        if block.commands == ["make setup"]:
            use_this_environment(reader.cwd)
        reader.run(block.text)


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
def dev(reader: Reader) -> Iterator[Dev]:
    dev = Dev(["make", "dev"], reader.environ, reader.cwd / "dev.log", "PORT={}", reader.cwd)
    try:
        dev.await_("the UI's address", lambda: "Dagster UI on" in dev.log.read_text())
        yield dev
    finally:
        # As Ctrl-C in a terminal does, which reaches what make has started.
        psutil.Process(dev.process.pid).children()[0].send_signal(signal.SIGINT)
        dev.process.wait(90)


@pytest.fixture(scope="module")
def page() -> Generator[Page]:
    with browser_page() as page:
        yield page


# test_pages.py has the pages and sensors of the sample's tables.
@pytest.mark.long
@pytest.mark.browser
def test_the_ui_shows_the_tables(dev: Dev, page: Page) -> None:
    page.goto(f"{dev.url}/assets/ratify/gold/sales?view=lineage")
    for name in ("orders", "sales", "Spark"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    page.goto(f"{dev.url}/assets/ratify/silver/orders")
    expect(page.get_by_text("In euros").first).to_be_visible()
    expect(page.get_by_text("bronze.orders.customer_name").first).to_be_visible()
    expect(page.get_by_role("columnheader", name="amount")).to_be_visible()
    expect(page.get_by_role("columnheader", name="customer")).to_have_count(0)


@pytest.mark.long
def test_a_file_that_lands_reaches_gold_by_itself(dev: Dev, reader: Reader) -> None:
    tuesday = "Order ID,Customer Name,Amount (EUR),Placed At\n4,Dee,4.00,2026-01-06 18:00\n"
    (reader.cwd / ".ratify/landing/till/tuesday.csv").write_text(tuesday)
    dev.await_("gold having two days", lambda: dev.rows("gold/sales") == 2)

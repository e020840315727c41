"""The Dagster UI on an empty lake: `ratify dev` with its own stack, the daemon's own runs, and runs from the browser.

tests/smoke/test_pages.py has the pages.
"""

from collections.abc import Generator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect

from ratify_lakehouse.cli.sample_flights import land_days
from tests.browser_page import browser_page
from tests.cli.ratify_command import RATIFY, environment
from tests.dev_server import Dev

pytestmark = [pytest.mark.stack, pytest.mark.browser, pytest.mark.long]

TABLES = 16
DAYS = ["2013-01-01", "2013-01-02", "2013-01-03"]


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Generator[Dev]:
    home = tmp_path_factory.mktemp("dev")
    land_days(str(home / "landing"), 3)
    dev = Dev([RATIFY, "dev"], environment(home), home / "dev.log")
    try:
        yield dev
    finally:
        if dev.process.poll() is None:
            dev.stop()


@pytest.fixture(scope="module")
def page(dev: Dev) -> Generator[Page]:
    with browser_page() as page:
        yield page


def test_sensor_and_automation_bring_every_table_up(dev: Dev) -> None:
    dev.await_("every table being materialized", lambda: dev.materialized() >= TABLES and dev.idle())
    assert dev.errors() == []
    assert dev.unchecked() == []


def test_checks_are_green(dev: Dev, page: Page) -> None:
    for table, checks in (("bronze/flights_raw", 12), ("silver/flights", 22)):
        page.goto(f"{dev.url}/assets/ratify/{table}?view=checks")
        expect(page.get_by_text(f"Checks ({checks})")).to_be_visible()
        expect(page.get_by_text("Succeeded", exact=True)).to_have_count(checks)
        expect(page.get_by_text("Failed", exact=True)).to_have_count(0)


def test_a_day_that_lands_reaches_gold_by_itself(dev: Dev) -> None:
    before = set(dev.runs())
    ((path, _),) = land_days(str(dev.log.parent / "landing"), 1)
    wanted = {("bronze/flights_raw", None), ("gold/carrier_daily", None), ("gold/airport_daily", Path(path).stem)}

    dev.await_("gold having the day", lambda: dev.made_since(before, scheduled=True) >= wanted)
    dev.await_("the end of all runs", dev.idle)
    assert dev.errors(but=before) == []


def test_materialize_all_succeeds(dev: Dev, page: Page) -> None:
    before = set(dev.runs())
    page.goto(f"{dev.url}/locations/ratify/jobs/medallion")
    page.get_by_role("button", name="Materialize all").click()
    dev.await_("the run being launched", lambda: set(dev.runs()) - before)
    dev.await_("the run's end", dev.idle)
    assert dev.errors(but=before) == []


def test_a_day_is_reprocessed(dev: Dev, page: Page) -> None:
    before = set(dev.runs())
    page.goto(f"{dev.url}/locations/ratify/jobs/reprocess/playground")
    page.get_by_placeholder("Partition").fill(DAYS[1])
    page.get_by_text(DAYS[1], exact=True).first.click()
    page.get_by_role("button", name="Launch Run").click()
    dev.await_("the run being launched", lambda: set(dev.runs()) - before)
    dev.await_("the run's end", dev.idle)
    assert dev.errors(but=before) == []
    (run,) = [each for each in set(dev.runs()) - before if dev.made(each)]
    made = dev.made(run)
    assert {("silver/flights", None), ("gold/airport_daily", DAYS[1]), ("gold/carrier_daily", None)} <= made

    def checking() -> list[str]:
        return [each for each, job in dev.jobs().items() if each not in before and job == "reprocess_checks"]

    # A sensor requests the checks of these tables.
    dev.await_("the run of the checks", checking)
    dev.await_("the end of the checks", dev.idle)
    assert [dev.runs()[each] for each in checking()] == ["SUCCESS"]


def test_everything_ends_with_it(dev: Dev) -> None:
    family = dev.family()
    assert any("dagster" in " ".join(process.cmdline()) for process in family)
    dev.process.kill()
    dev.process.wait(30)
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive

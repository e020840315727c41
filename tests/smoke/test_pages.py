"""The Dagster UI as a person uses it after a demo: `ratify dev`, a real headless Chromium, and the daemon's own runs.

tests/sample/test_ui.py has what takes longer: an empty lake that the daemon brings up, and more runs from the browser.
"""

import json
import os
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect

from ratify_lakehouse.cli.sample_flights import write
from ratify_lakehouse.definitions.project_tables import event_stream
from ratify_lakehouse.embedded.embedded_stack import status
from tests.browser_page import browser_page
from tests.cli.ratify_command import RATIFY, environment
from tests.dev_server import Dev
from tests.smoke.conftest import Smoke, selected

pytestmark = [
    pytest.mark.server,
    pytest.mark.stack,
    pytest.mark.browser,
    pytest.mark.usefixtures("demo"),
    pytest.mark.one_process("smoke"),
]

STREAM = event_stream()
TABLES = 16
DAYS = ["2013-01-01", "2013-01-02", "2013-01-03"]
HOUR, WARM = "2013-01-01T10:00:00Z", "99.5"
HOTTEST = "SELECT max(temperature_f) AS fahrenheit FROM gold.airport_hourly"


@pytest.fixture(scope="module")
def dev(smoke: Smoke) -> Generator[Dev]:
    dev = Dev([RATIFY, "dev"], environment(smoke.home), smoke.home / "dev.log")
    try:
        yield dev
    finally:
        if dev.process.poll() is None:
            dev.stop()


@pytest.fixture(scope="module")
def page(dev: Dev) -> Generator[Page]:
    with browser_page() as page:
        yield page


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for pictures of the pages; RATIFY_SCREENSHOTS names one, from which those of the README are taken."""
    given = os.environ.get("RATIFY_SCREENSHOTS")
    return Path(given) if given else tmp_path_factory.mktemp("screens")


@pytest.fixture(scope="module")
def landed(smoke: Smoke, dev: Dev) -> set[str]:
    """A corrected file that has landed after the demo; the runs that there were before it."""
    dev.await_("the runs of the demo", lambda: dev.materialized() >= TABLES)
    before = set(dev.runs(scheduled=True))
    assert selected(smoke, HOTTEST) != [{"fahrenheit": float(WARM)}]
    header, *lines = (smoke.home / "landing/reference/weather.csv").read_text().splitlines()
    observed = next(line.split(",") for line in lines if line.startswith("EWR,") and line.endswith(HOUR))
    observed[header.split(",").index("temp")] = WARM
    write(str(smoke.home / "landing"), "reference/weather-corrected.csv", f"{header}\n{','.join(observed)}\n".encode())
    return before


def test_a_file_that_lands_starts_a_run(dev: Dev, landed: set[str]) -> None:
    dev.await_("a run of the daemon", lambda: set(dev.runs(scheduled=True)) - landed)
    run = min(set(dev.runs(scheduled=True)) - landed)
    dev.await_("bronze having the file", lambda: ("bronze/weather", None) in dev.made(run))


def test_it_reaches_gold_by_itself(smoke: Smoke, dev: Dev, landed: set[str]) -> None:
    """In one run, which the daemon's sensor requests; sensors and automation find nothing else to do after a demo."""
    wanted = {("bronze/weather", None), ("silver/flights_weather", None), ("gold/airport_hourly", None)}
    loaded = [{"fahrenheit": float(WARM)}]
    dev.await_(
        "gold having the file",
        lambda: dev.made_since(landed, scheduled=True) >= wanted and selected(smoke, HOTTEST) == loaded,
    )
    dev.await_("the end of all runs", dev.idle)
    assert dev.made_since(landed) <= wanted
    assert len(set(dev.runs()) - landed) == 1
    assert dev.errors(but=landed) == []
    assert dev.unchecked() == []


def test_lineage_shows_the_layers(dev: Dev, page: Page, screens: Path) -> None:
    page.goto(f"{dev.url}/asset-groups")
    for layer in ("landing", "bronze", "silver", "gold"):
        expect(page.get_by_text(layer, exact=True).first).to_be_visible()
    for asset, neighbour, kinds in (
        ("bronze/flights_raw", "flights_quarantine", ("DuckDB", "Delta Lake", "Bronze")),
        ("silver/flights", "flights_raw", ("Spark", "Delta Lake", "Silver")),
        ("/".join(STREAM.name.split(".")), STREAM.records.name, ("Spark", "Delta Lake", "Silver")),
        ("gold/airport_hourly", "flights_weather", ("DuckDB", "Delta Lake", "Gold")),
    ):
        page.goto(f"{dev.url}/assets/ratify/{asset}?view=lineage")
        for text in (asset.split("/")[1], neighbour, *kinds):
            expect(page.get_by_text(text, exact=True).first).to_be_visible()
    page.screenshot(path=screens / "lineage.png")


def test_the_timeline_shows_the_runs_of_the_demo_with_their_job(dev: Dev, page: Page) -> None:
    page.goto(f"{dev.url}/overview/activity/timeline")
    expect(page.locator("a[href$='/locations/ratify/jobs/ingest']")).to_be_visible()
    # The job's page knows of them, too.
    page.goto(f"{dev.url}/locations/ratify/jobs/ingest/runs")
    runs = [run for run, job in dev.jobs().items() if job == "ingest"]
    # The two landings of the demo; a sensor may have asked for what is made of them since.
    assert len(runs) >= 2
    for run in runs:
        expect(page.locator(f"a[href*='/runs/{run}']").first).to_be_visible()


def test_three_partitions_are_backfilled(dev: Dev, page: Page) -> None:
    before = set(dev.runs())
    page.goto(f"{dev.url}/assets/ratify/gold/airport_daily?view=partitions")
    page.get_by_role("button", name="Materialize").first.click()
    dialog = page.get_by_role("dialog")
    days = dialog.get_by_placeholder("ex: 2013-01-01")
    days.fill(f"[{DAYS[0]}...{DAYS[-1]}]")
    days.press("Enter")
    expect(dialog.get_by_text("3 partitions")).to_be_visible()
    expect(dialog.get_by_text("Backfills all partitions in a single run.")).to_be_visible()
    dialog.get_by_role("button", name="Launch backfill").click()
    dev.await_("the run being launched", lambda: set(dev.runs()) - before)
    dev.await_("the run's end", dev.idle)
    assert dev.errors(but=before) == []
    (run,) = set(dev.runs()) - before
    assert dev.made(run) == {("gold/airport_daily", day) for day in DAYS}


def test_checks_are_green_but_for_the_refused_file(dev: Dev, page: Page) -> None:
    for table, checks, failed in (("bronze/flights_raw", 5, 1), ("silver/flights", 18, 0)):
        page.goto(f"{dev.url}/assets/ratify/{table}?view=checks")
        expect(page.get_by_text(f"Checks ({checks})")).to_be_visible()
        expect(page.get_by_text("Succeeded", exact=True)).to_have_count(checks - failed)
        expect(page.get_by_text("Failed", exact=True)).to_have_count(failed)


def test_the_page_of_a_sync_shows_what_it_did(dev: Dev, page: Page) -> None:
    page.goto(f"{dev.url}/assets/syncs/airports?view=checks")
    expect(page.get_by_text("Checks (2)")).to_be_visible()
    expect(page.get_by_text("Succeeded", exact=True)).to_have_count(2)
    page.goto(f"{dev.url}/assets/syncs/airports")
    expect(page.get_by_text("mirror into serving.airports").first).to_be_visible()
    for text in ("rows read", "inserted", "failed"):
        expect(page.get_by_text(text, exact=True).first).to_be_visible()


def test_asset_page_shows_what_was_written(dev: Dev, page: Page) -> None:
    page.goto(f"{dev.url}/assets/ratify/silver/flights")
    expect(page.get_by_text("Row count")).to_be_visible()
    expect(page.get_by_text("2,699").first).to_be_visible()
    # The columns, and the preview of the rows.
    expect(page.get_by_text("scheduled_departure_utc").first).to_be_visible()
    expect(page.get_by_role("columnheader", name="scheduled_departure_utc")).to_be_visible()
    expect(page.get_by_text("last commit", exact=True)).to_be_visible()
    expect(page.get_by_text("Delta version")).to_be_visible()
    expect(page.get_by_text("bronze.flights_raw.dep_delay").first).to_be_visible()
    # The picture of the column lineage, which opens over the page.
    page.get_by_role("row").filter(has_text="column lineage").get_by_text("[Show Markdown]").click()
    drawn = page.get_by_alt_text("The columns that each column is computed from")
    expect(drawn).to_be_visible()
    assert drawn.evaluate("image => image.complete && image.naturalWidth") > 300


EVERY_PAGE = (
    "Row count",
    "rows in",
    "rows out",
    "rows added",
    "seconds",
    "Delta version",
    "last commit",
    "preview",
    "Checks",
    "Source code",
)
OF_A_PASS = ("query", "column lineage", "rows updated", "strategy", "inputs read", "from version", "to version")
PAGES = {
    "bronze/flights_raw": ("newest files", "files loaded", "Minutes; early is negative"),
    "silver/flights": (
        *OF_A_PASS,
        "rows in quarantine",
        "rows quarantined",
        "duplicates",
        "Local date of the scheduled departure",
        "ratify.bronze.flights_raw",
    ),
    "gold/carrier_daily": (*OF_A_PASS, "IATA code", "ratify.silver.flights"),
}
"""What the page of a table shows beyond what every page shows: numbers, texts, and descriptions of columns."""
OF_CHANGES = ("rows in", "rows changed in inputs")
"""Plots of a table that has gone by what changed in its inputs."""


@pytest.mark.parametrize("table", PAGES)
def test_each_page_has_what_a_person_looks_for(dev: Dev, page: Page, table: str, screens: Path) -> None:
    page.goto(f"{dev.url}/assets/ratify/{table}")
    for text in (*EVERY_PAGE, *PAGES[table]):
        expect(page.get_by_text(text).first).to_be_visible()
    page.screenshot(path=screens / f"{table.replace('/', '-')}.png", full_page=True)
    # The plots of the rows and the seconds of each materialization.
    page.get_by_text("Plots", exact=True).first.click()
    expect(page.locator("canvas").first).to_be_visible()
    plots = ("rows added", "seconds", "dagster/row_count")
    for text in plots if table.startswith("bronze") else (*plots, *OF_CHANGES):
        expect(page.get_by_text(text, exact=True).first).to_be_visible()


def test_no_secret_is_shown(smoke: Smoke, dev: Dev) -> None:
    tokens = [file.read_text().strip() for file in (smoke.home / "secrets").glob("*.token")]
    assert len(tokens) == 3
    shown = json.dumps(
        dev.ask(
            "{repositoriesOrError {... on RepositoryConnection {nodes {allTopLevelResourceDetailsOrError: name "
            "location {name}}}} instance {info}}"
        )
    )
    logs = "".join(path.read_text(errors="replace") for path in (smoke.home / "logs").glob("*.log"))
    commands = [" ".join(process.cmdline()) for process in psutil.process_iter() if _readable(process)]
    for token in tokens:
        assert token not in shown + logs + dev.log.read_text()
        assert not [command for command in commands if token in command]


def _readable(process: psutil.Process) -> bool:
    try:
        return bool(process.cmdline())
    except psutil.Error:
        return False


def test_what_it_started_ends_with_it_and_the_stack_goes_on(smoke: Smoke, dev: Dev) -> None:
    """With a stack of its own, that ends, too: tests/sample/test_ui.py."""
    family = dev.family()
    assert any("dagster" in " ".join(process.cmdline()) for process in family)
    dev.process.kill()
    dev.process.wait(30)
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
    assert status(smoke.home) == smoke.state

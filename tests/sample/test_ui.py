"""The Dagster UI as a person uses it: `ratify dev`, a real headless Chromium, the daemon's own runs and one by hand."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Collection, Generator
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Page, expect

from orchestration.cli.sample_flights import land_days
from orchestration.project_tables import event_stream
from tests.browser_page import browser_page

pytestmark = [pytest.mark.stack, pytest.mark.browser]

# A start of everything, and two runs that meet a cold JVM, on two cores that other tests have just left.
PATIENCE_S = 1200
STREAM = event_stream()
TABLES = 16
DAYS = ["2013-01-01", "2013-01-02", "2013-01-03"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_JOBS = "{runsOrError(limit: 100) {... on Runs {results {runId jobName}}}}"


class Dev:
    """A running `ratify dev`."""

    def __init__(self, home: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = home / "dev.log"
        environ = {**os.environ, "RATIFY_HOME": str(home)}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [str(Path(sys.executable).with_name("ratify")), "dev", "--port", str(self.port)],
                env=environ,
                stdout=log,
                stderr=log,
            )

    def ask(self, query: str) -> dict[str, Any]:
        body = json.dumps({"query": query}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"content-type": "application/json"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return json.load(answer)["data"]

    def runs(self) -> dict[str, str]:
        runs = self.ask("{runsOrError(limit: 100) {... on Runs {results {runId status}}}}")["runsOrError"]["results"]
        return {run["runId"]: run["status"] for run in runs}

    def errors(self, but: Collection[str] = ()) -> list[str]:
        """What the runs said that did not succeed, but for those of `but`."""
        said = list[str]()
        for run, status in self.runs().items():
            if status != "SUCCESS" and run not in but:
                answer = self.ask(
                    f"{{runOrError(runId: {json.dumps(run)}) {{... on Run {{jobName assetSelection {{path}} "
                    "eventConnection(limit: 5000) {events {... on MessageEvent {message stepKey} ... on ErrorEvent "
                    "{error {message causes {message}}}}}}}}"
                )["runOrError"]
                failed = [event for event in answer["eventConnection"]["events"] if event.get("error")]
                said.append(f"{run} {status} {answer['jobName']} {answer['assetSelection']}: {failed}")
        return said

    def materialized(self) -> int:
        nodes = self.ask("{assetNodes {assetMaterializations(limit: 1) {timestamp}}}")["assetNodes"]
        return sum(bool(node["assetMaterializations"]) for node in nodes)

    def made(self, run: str) -> set[tuple[str, str | None]]:
        """The tables that a run materialized, each with its partition."""
        events = self.ask(
            f"{{runOrError(runId: {json.dumps(run)}) {{... on Run {{eventConnection(limit: 5000) {{events "
            "{... on MaterializationEvent {partition assetKey {path}}}}}}}"
        )["runOrError"]["eventConnection"]["events"]
        return {("/".join(each["assetKey"]["path"][1:]), each["partition"]) for each in events if each}

    def unchecked(self) -> list[str]:
        """The checks that never ran of tables of silver and gold that are there."""
        nodes = self.ask(
            "{assetNodes {assetKey {path} assetMaterializations(limit: 1) {timestamp} "
            "assetChecksOrError {... on AssetChecks {checks {name}}}}}"
        )["assetNodes"]
        never = list[str]()
        for node in nodes:
            path = node["assetKey"]["path"]
            if node["assetMaterializations"] and path[1] in {"silver", "gold"}:
                for check in node["assetChecksOrError"]["checks"]:
                    which = f"assetKey: {{path: {json.dumps(path)}}}, checkName: {json.dumps(check['name'])}, limit: 1"
                    if not self.ask(f"{{assetCheckExecutions({which}) {{status}}}}")["assetCheckExecutions"]:
                        never.append(f"{'/'.join(path)}: {check['name']}")
        return never

    def await_(self, what: str, done: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"ratify dev ended: {self.log.read_text()}"
            try:
                if done():
                    return
            except OSError:
                pass
            time.sleep(1)
        pytest.fail(f"{what} did not happen within {PATIENCE_S} s; runs: {self.runs()}; {self.log.read_text()[-2000:]}")

    def idle(self) -> bool:
        return all(status in {"SUCCESS", "FAILURE", "CANCELED"} for status in self.runs().values())


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory, jars_dir: Path) -> Generator[Dev]:
    home = tmp_path_factory.mktemp("dev")
    (home / "jars").symlink_to(jars_dir)
    land_days(str(home / "landing"), 3)
    dev = Dev(home)
    try:
        yield dev
    finally:
        if dev.process.poll() is None:
            dev.process.send_signal(signal.SIGINT)
            dev.process.wait(90)


@pytest.fixture(scope="module")
def page(dev: Dev) -> Generator[Page]:
    with browser_page() as page:
        page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        yield page


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for pictures of the pages; RATIFY_SCREENSHOTS names one, from which those of the README are taken."""
    given = os.environ.get("RATIFY_SCREENSHOTS")
    return Path(given) if given else tmp_path_factory.mktemp("screens")


def test_sensor_and_automation_bring_every_table_up(dev: Dev) -> None:
    dev.await_("every table being materialized", lambda: dev.materialized() >= TABLES and dev.idle())
    assert dev.errors() == []
    assert dev.unchecked() == []


def test_lineage_shows_the_layers(dev: Dev, page: Page, screens: Path) -> None:
    page.goto(f"{dev.url}/asset-groups")
    for layer in ("landing", "bronze", "silver", "gold"):
        expect(page.get_by_text(layer, exact=True).first).to_be_visible()
    for asset, neighbour, kinds in (
        ("bronze/flights_raw", "flights_quarantine", ("DuckDB", "delta", "Bronze")),
        ("silver/flights", "flights_raw", ("Spark", "delta", "Silver")),
        ("/".join(STREAM.name.split(".")), STREAM.records.name, ("Spark", "delta", "Silver")),
        ("gold/airport_hourly", "flights_weather", ("Spark", "delta", "Gold")),
    ):
        page.goto(f"{dev.url}/assets/ratify/{asset}?view=lineage")
        for text in (asset.split("/")[1], neighbour, *kinds):
            expect(page.get_by_text(text, exact=True).first).to_be_visible()
    page.screenshot(path=screens / "lineage.png")


@pytest.mark.long
def test_materialize_all_succeeds(dev: Dev, page: Page) -> None:
    before = set(dev.runs())
    page.goto(f"{dev.url}/locations/ratify/jobs/medallion")
    page.get_by_role("button", name="Materialize all").click()
    dev.await_("the run being launched", lambda: set(dev.runs()) - before)
    dev.await_("the run's end", dev.idle)
    assert dev.errors(but=before) == []


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


def test_checks_are_green(dev: Dev, page: Page) -> None:
    for table, checks in (("bronze/flights_raw", 12), ("silver/flights", 22)):
        page.goto(f"{dev.url}/assets/ratify/{table}?view=checks")
        expect(page.get_by_text(f"Checks ({checks})")).to_be_visible()
        expect(page.get_by_text("Succeeded", exact=True)).to_have_count(checks)
        expect(page.get_by_text("Failed", exact=True)).to_have_count(0)


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


EVERY_PAGE = ("Row count", "rows added", "seconds", "Delta version", "last commit", "preview", "Checks", "Source code")
OF_A_PASS = ("query", "column lineage", "rows updated", "strategy", "inputs read", "from version", "to version")
PAGES = {
    "bronze/flights_raw": ("newest files", "files loaded", "Minutes; early is negative"),
    "silver/flights": (*OF_A_PASS, "Local date of the scheduled departure", "ratify.bronze.flights_raw"),
    "gold/carrier_daily": (*OF_A_PASS, "IATA code", "ratify.silver.flights"),
}
"""What the page of a table shows beyond what every page shows: numbers, texts, and descriptions of columns."""


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
    for text in plots if table.startswith("bronze") else (*plots, "rows processed"):
        expect(page.get_by_text(text, exact=True).first).to_be_visible()


def test_no_secret_is_shown(dev: Dev) -> None:
    tokens = [file.read_text().strip() for file in (dev.log.parent / "secrets").glob("*.token")]
    assert len(tokens) == 3
    shown = json.dumps(
        dev.ask(
            "{repositoriesOrError {... on RepositoryConnection {nodes {allTopLevelResourceDetailsOrError: name "
            "location {name}}}} instance {info}}"
        )
    )
    logs = "".join(path.read_text(errors="replace") for path in (dev.log.parent / "logs").glob("*.log"))
    commands = [" ".join(process.cmdline()) for process in psutil.process_iter() if _readable(process)]
    for token in tokens:
        assert token not in shown + logs + dev.log.read_text()
        assert not [command for command in commands if token in command]


def _readable(process: psutil.Process) -> bool:
    try:
        return bool(process.cmdline())
    except psutil.Error:
        return False


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
        # A schedule may start a run of its own meanwhile.
        jobs = {each["runId"]: each["jobName"] for each in dev.ask(_JOBS)["runsOrError"]["results"]}
        return [each for each, job in jobs.items() if each not in before and job == "reprocess_checks"]

    # A sensor requests the checks of these tables.
    dev.await_("the run of the checks", checking)
    dev.await_("the end of the checks", dev.idle)
    assert [dev.runs()[each] for each in checking()] == ["SUCCESS"]
    # The first pass of the table that went by what changed in its inputs.
    page.goto(f"{dev.url}/assets/ratify/silver/flights")
    page.get_by_text("Plots", exact=True).first.click()
    expect(page.get_by_text("rows changed in inputs", exact=True).first).to_be_visible()


def test_everything_ends_with_it(dev: Dev) -> None:
    family = psutil.Process(dev.process.pid).children(recursive=True)
    assert any("dagster" in " ".join(process.cmdline()) for process in family)
    dev.process.kill()
    dev.process.wait(30)
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive

"""A page of a real headless Chromium."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect, sync_playwright

_CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
_QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


@contextmanager
def browser_page() -> Generator[Page]:
    """A page that is as large as a laptop's window; the test is skipped where there is no Chromium."""
    if _CHROMIUM is None:
        pytest.skip("no Chromium on this machine: install the package chromium to run the browser tests")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=_CHROMIUM, args=[*_QUIET, "--disable-component-update", "--disable-sync"]
        )
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        # A page of Dagster on a busy machine takes longer than the 30 and 5 s that Playwright waits.
        page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        yield page
        browser.close()

"""Links between the pages: the file that each names exists, and the heading, if it names one."""

import re
from pathlib import Path

from tests.tracked_files import ROOT, tracked

PAGES = {path: path.read_text(encoding="utf-8") for path in tracked() if path.suffix == ".md"}
BLOCK = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def broken(page: Path, text: str) -> list[str]:
    """The links of a page that lead nowhere."""
    found = list[str]()
    for link in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", text)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if link.startswith(("http:", "https:")) or (target.exists() and not anchor):
            continue
        if anchor not in anchors(PAGES.get(target, "")):
            found.append(f"{page.relative_to(ROOT)}: {link}")
    return found


def test_each_link_leads_to_a_page_and_a_heading() -> None:
    assert len(PAGES) > 30
    assert [link for page, text in PAGES.items() for link in broken(page, text)] == []


def test_a_link_to_a_heading_that_was_renamed_is_found() -> None:
    page = ROOT / "README.md"
    assert broken(page, "[a](docs/glossary.md#commits), [b](docs/glossary.md), [c](https://example.com/x#y)") == []
    text = "[a](docs/glossary.md#no-such-heading), [b](docs/no-such-page.md), [c](#no-such-heading)"
    assert len(broken(page, text)) == 3

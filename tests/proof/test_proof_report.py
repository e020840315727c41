"""The report of the proof: nothing that was not shown looks as if it were, and nothing that is shown is markup."""

import datetime as dt
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.proof.proof_report import verdict, write_report

START = dt.datetime(2026, 11, 21, 14, 0, tzinfo=dt.UTC)
SPARK, DUCKDB = "Apache-Spark/4.2.0 Delta-Lake/4.4.0", "DuckDB/1.5.5 Ratify/0.1.0"
RESULTS = [("spark write", "passed", "3 commits"), ("flink", "unavailable", "no connector: set FLINK_DELTA_JARS")]


def commit(version: int, engine: Engine, info: str, seconds: float, rows: int | None = None) -> Commit:
    metrics = {} if rows is None else {"numOutputRows": rows}
    return Commit(version, START + dt.timedelta(seconds=seconds), "WRITE", engine, info, metrics)


COMMITS = {
    # Newest first, as DESCRIBE HISTORY has them.
    "orders": [
        commit(2, Engine.DUCKDB, DUCKDB, 100, 20),
        commit(1, Engine.SPARK, SPARK, 50, 1000),
        commit(0, Engine.SPARK, SPARK, 0),
    ],
    "orders_stream": [commit(0, Engine.SPARK, SPARK, 25)],
    "empty": [],
}


class Page(HTMLParser):
    """What a browser makes of a page: its tags, each with its class, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def classes(self, tag: str) -> list[str | None]:
        return [attributes.get("class") for name, attributes in self.tags if name == tag and "class" in attributes]


def svg_of(page: Path) -> ET.Element:
    text = page.read_text(encoding="utf-8")
    return ET.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])  # noqa: S314 it is ours


def rows_of(markdown: Path, heading: str) -> list[list[str]]:
    section = markdown.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_both_files_group_the_commits_by_engine(tmp_path: Path) -> None:
    markdown, page = write_report(tmp_path / "new" / "folder", COMMITS, RESULTS)
    assert (markdown.name, page.name) == ("report.md", "report.html")
    assert rows_of(markdown, "Commits by engine") == [
        ["Spark", "3", "1,000", "orders, orders_stream", SPARK],
        ["DuckDB", "1", "20", "orders", DUCKDB],
    ]
    assert [row[:5] for row in rows_of(markdown, "orders")] == [
        ["0", "2026-11-21 14:00:00", "Spark", "WRITE", ""],
        ["1", "2026-11-21 14:00:50", "Spark", "WRITE", "1,000"],
        ["2", "2026-11-21 14:01:40", "DuckDB", "WRITE", "20"],
    ]
    assert rows_of(markdown, "empty") == []
    for said in ("1,000", SPARK, DUCKDB, "orders_stream", "empty (0)"):
        assert said in Page(page).text


def test_the_timeline_has_a_lane_a_table_and_a_colour_an_engine(tmp_path: Path) -> None:
    svg = svg_of(write_report(tmp_path, COMMITS, RESULTS)[1])
    dots = [(float(dot.attrib["cx"]), float(dot.attrib["cy"]), dot.attrib["fill"]) for dot in svg.iter("circle")]
    assert len(dots) == 4
    orders, stream = dots[:3], dots[3]
    first, middle, last = (x for x, _, _ in orders)
    assert middle - first == pytest.approx(last - middle, abs=0.2) == pytest.approx(2 * (stream[0] - first), abs=0.2)
    assert last - first > 600
    assert [len({y for _, y, _ in orders}), len({y for _, y, _ in dots})] == [1, 2]
    assert orders[0][2] == orders[1][2] == stream[2] != orders[2][2]
    shown = [text.text for text in svg.iter("text")]
    assert shown[:5] == ["14:00:00", "14:00:25", "14:00:50", "14:01:15", "14:01:40"]
    assert shown[5:] == ["orders", "orders_stream", "empty"]
    assert "version 2: WRITE by DuckDB/1.5.5" in (svg.findall("circle")[2].findtext("title") or "")


def test_one_commit_and_none_at_all(tmp_path: Path) -> None:
    svg = svg_of(write_report(tmp_path, {"t": [commit(0, Engine.FLINK, "", 0)]}, [])[1])
    assert [text.text for text in svg.iter("text")] == ["14:00:00", "t"]
    assert len(list(svg.iter("circle"))) == 1
    assert "There are no commits" in Page(write_report(tmp_path, {}, [])[1]).text


@pytest.mark.parametrize(
    ("statuses", "whole", "mark", "class_"),
    [
        (["passed", "passed"], "passed", "✓", "passed"),
        (["passed", "failed", "unavailable"], "failed", "✗", "failed"),
        (["passed", "unavailable"], "incomplete", "⚠", "open"),
        (["unavailable"], "incomplete", "⚠", "open"),
        (["passed", "Passed"], "incomplete", "⚠", "open"),
        (["passed", ""], "incomplete", "⚠", "open"),
        ([], "incomplete", "⚠", "open"),
    ],
    ids=str,
)
def test_only_what_has_passed_looks_so(tmp_path: Path, statuses: list[str], whole: str, mark: str, class_: str) -> None:
    results = [(f"r{number}", status, "d") for number, status in enumerate(statuses)]
    assert verdict(results) == whole
    markdown, path = write_report(tmp_path, {}, results)
    assert markdown.read_text(encoding="utf-8").startswith(f"# Cross-engine proof: {mark} {whole}\n")
    page = Page(path)
    assert page.classes("h1") == [class_]
    passed = sum(status == "passed" for status in statuses)
    assert sum(row[1].startswith("✓") for row in rows_of(markdown, "Results")) == passed
    assert page.classes("td").count("passed") == passed
    assert page.text.count("✓") == passed + 2 * (whole == "passed")


def test_what_is_said_is_no_markup(tmp_path: Path) -> None:
    said = "<script>alert(1)</script> a|b \"q\" 'q' & *x* [y](z)\nsecond line"
    hostile = Commit(0, START, said, Engine.OTHER, said)
    markdown, path = write_report(tmp_path, {said: [hostile]}, [(said, said, said)])
    page = Page(path)
    assert "script" not in {tag for tag, _ in page.tags}
    assert not [attributes for _, attributes in page.tags if set(attributes) & {"onload", "onclick", "src", "href"}]
    assert page.text.count("<script>alert(1)</script> a|b \"q\" 'q' & *x* [y](z)") >= 6
    text = markdown.read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "a\\|b" in text
    assert "\\*x\\* \\[y\\](z)<br>second line" in text


def test_the_page_needs_nothing_beside_it(tmp_path: Path) -> None:
    text = write_report(tmp_path, COMMITS, RESULTS)[1].read_text(encoding="utf-8")
    assert "://" not in text
    assert "prefers-color-scheme: dark" in text

"""The picture of the column lineage: the graph that it shows, and how a real browser draws it."""

import json
import re
from base64 import b64decode
from collections.abc import Generator, Mapping
from html import unescape
from pathlib import Path

import dagster as dg
import pytest
from playwright.sync_api import Page

from ratify_lakehouse.components.lineage_graph import LineageGraph, latest_lineage, lineage_graph
from ratify_lakehouse.components.lineage_picture import lineage_svg, shown_lineage
from ratify_lakehouse.components.table_asset import TableChange, asset_key, column_lineage, result
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from tests.browser_page import browser_page

RAW, CLEAN, DAILY, OTHER = (
    dg.AssetKey(["lake", *name.split(".")]) for name in ("bronze.raw", "silver.clean", "gold.daily", "bronze.other")
)
ODD = [
    "<script>window.hit = 1</script>",
    "a&b\"c'<",
    "顧客の名前",
    "with space",
    "line\nend",
    "\x00\x1b\u202eevil",
    "]]>",
    "&lt;",
]


def lineage(deps: Mapping[str, list[tuple[dg.AssetKey, str]]]) -> dg.TableColumnLineage:
    return dg.TableColumnLineage({name: [dg.TableColumnDep(*at) for at in found] for name, found in deps.items()})


LINEAGES = {
    DAILY: lineage({"day": [(CLEAN, "at")], "mean": [(CLEAN, "value"), (OTHER, "weight")]}),
    CLEAN: lineage({"at": [(RAW, "at_text")], "value": [(RAW, "value_text")], "unused": [(RAW, "never")]}),
}


def graph_of(table: dg.AssetKey, *columns: str, most: int | None = None) -> LineageGraph:
    return lineage_graph(table, columns, LINEAGES.get, most)


def test_the_graph_goes_up_to_bronze_and_has_only_what_the_table_is_computed_from() -> None:
    graph = graph_of(DAILY, "day", "mean", "rows")
    assert graph.columns == {
        DAILY: ("day", "mean", "rows"),
        CLEAN: ("at", "value"),
        OTHER: ("weight",),
        RAW: ("at_text", "value_text"),
    }
    assert ((RAW, "value_text"), (CLEAN, "value")) in graph.edges
    assert len(graph.edges) == 5
    assert graph.levels == {DAILY: 0, CLEAN: 1, OTHER: 1, RAW: 2}


def test_a_table_stands_before_everything_that_is_computed_from_it() -> None:
    # By one way it is one table away, by the other two.
    both = {DAILY: lineage({"a": [(RAW, "x"), (CLEAN, "y")]}), CLEAN: lineage({"y": [(RAW, "x")]})}
    assert lineage_graph(DAILY, ["a"], both.get).levels == {DAILY: 0, CLEAN: 1, RAW: 2}


def test_a_table_that_reads_its_own_rows_can_be_drawn() -> None:
    own = {DAILY: lineage({"total": [(DAILY, "total"), (CLEAN, "x")]}), CLEAN: lineage({"x": [(DAILY, "total")]})}
    graph = lineage_graph(DAILY, ["total"], own.get)
    assert set(graph.levels) == {DAILY, CLEAN}
    assert drawn_texts(lineage_svg(graph)).count("total") == 1


def test_a_wide_table_says_how_many_columns_are_not_drawn() -> None:
    texts = drawn_texts(lineage_svg(graph_of(DAILY, "day", "mean", "rows", most=1)))
    assert "gold.daily (1 columns, 2 are not drawn)" in texts
    assert "mean" not in texts


def drawn_texts(svg: str) -> list[str]:
    return [unescape(text) for text in re.findall("<text[^>]*>(.*?)</text>", svg)]


@pytest.fixture(scope="module")
def page() -> Generator[Page]:
    with browser_page() as page:
        yield page


@pytest.mark.browser
def test_a_browser_draws_odd_names_as_text(page: Page, tmp_path: Path) -> None:
    odd = {DAILY: lineage({name: [(dg.AssetKey(["lake", "bronze", "<b>raw</b>"]), name)] for name in ODD})}
    file = tmp_path / "odd.svg"
    file.write_text(lineage_svg(lineage_graph(DAILY, ODD, odd.get)))
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    texts = page.evaluate("[...document.querySelectorAll('text')].map(text => text.textContent)")
    assert [text for text in texts if text == ODD[0]] == [ODD[0]] * 2
    assert {*ODD[:4], "]]>", "&lt;", "line�end", "gold.daily", "bronze.<b>raw</b>"} <= set(texts)
    assert not re.search("[\x00-\x1f\u202e]", "".join(texts))
    assert page.evaluate("[window.hit ?? 0, document.querySelectorAll('script, parsererror, b').length]") == [0, 0]
    assert asked == [file.as_uri()]
    # Each name is within its table's box, and the boxes within the picture.
    outside = page.evaluate("""() => {
        const boxes = [...document.querySelectorAll('rect')].slice(1).map(rect => rect.getBoundingClientRect());
        const inside = (a, b) => a.left >= b.left && a.right <= b.right && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
        return [...document.querySelectorAll('text')].filter(
            text => !boxes.some(box => inside(text.getBoundingClientRect(), box))).map(text => text.textContent) }""")
    assert outside == []


@pytest.mark.browser
def test_the_asset_pages_picture_is_one_that_a_browser_loads_by_itself(page: Page) -> None:
    shown = shown_lineage(graph_of(DAILY, "day", "mean")).md_str
    found = re.fullmatch(r"!\[[\w ]+\]\((data:image/svg\+xml;base64,([\w+/=]+))\)", shown or "")
    assert found
    assert {"gold.daily", "day", "mean", "bronze.raw"} <= set(drawn_texts(b64decode(found[2]).decode()))
    page.goto("about:blank")
    page.set_content(f"<img src={json.dumps(found[1])}>")
    page.wait_for_function("document.images[0].complete")
    assert page.evaluate("document.images[0].naturalWidth") > 300


def declared(layer: str, name: str, **sources: tuple[str, ...]) -> TableDeclaration:
    columns = tuple(Column(column, "string", sources=of) for column, of in sources.items())
    return TableDeclaration(
        layer, name, columns, comment="c", writer=Engine.SPARK, operations=frozenset(), keys=(columns[0].name,)
    )


def test_a_materialization_shows_what_the_tables_before_it_reported() -> None:
    silver = declared("silver", "clean", value=("bronze.raw.value text.1",))
    gold = declared("gold", "daily", mean=("silver.clean.value",), rows=())
    bronze = declared("bronze", "raw", text=())

    @dg.multi_asset(specs=[dg.AssetSpec(asset_key(table)) for table in (bronze, silver, gold)])
    def tables() -> Generator[dg.MaterializeResult[object]]:
        for table in (bronze, silver, gold):
            yield result(table, TableChange(version=1, rows=1, added=1, versions=[1]))

    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize([tables], instance=instance)
        shown = {
            event.asset_key.path[-1]: event.step_materialization_data.materialization.metadata
            for event in done.get_asset_materialization_events()
            if event.asset_key
        }
        assert latest_lineage(instance)(asset_key(silver)) == column_lineage(silver)
    assert "column lineage" not in shown["raw"]
    picture = str(shown["daily"]["column lineage"].value)
    texts = drawn_texts(b64decode(picture.rpartition("base64,")[2].rstrip(")")).decode())
    assert set(texts) == {"bronze.raw", "value text.1", "silver.clean", "value", "gold.daily", "mean", "rows"}

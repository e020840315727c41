"""What bytes count as that an erasure has made, and when a landed file is not rewritten."""

from dataclasses import replace

import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.ingest.file_source import LandedCopy
from ratify_lakehouse.ingest.ledger.file_ledger import LedgerEntry, Status
from ratify_lakehouse.ingest.ledger.rewritten_contents import LandedContent, landed_content
from ratify_lakehouse.ingest.load.landed_rewrite import LandedRewrite
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.ingest.test_batch_loading import new_source


def entry(path: str, landed: str = "", version: int = 1, status: Status = Status.REWRITTEN) -> LedgerEntry:
    return LedgerEntry(path, "f", "made", 1, status, 2, "", version, "", landed, "")


@pytest.mark.parametrize(
    ("path", "entries", "held", "found"),
    [
        ("a", [], (), LandedContent("made")),
        ("a", [entry("a", status=Status.REPEATED)], (), LandedContent("made")),
        ("a", [entry("a", "first")], (), LandedContent("first", 2)),
        ("b", [entry("a", "first")], (), LandedContent("first", 2)),
        # The newest rewrite of a path, and of those of other paths one whose rows are there.
        (
            "a",
            [entry("a", "first", 3), entry("a", "later", 4), entry("b", "other", 9)],
            ("first",),
            LandedContent("later", 2),
        ),
        ("c", [entry("a", "first"), entry("b", "other")], ("first",), LandedContent("first", 2)),
        ("c", [entry("a", "first"), entry("b", "other")], ("other",), LandedContent("other", 2)),
        # They have landed by themselves, too.
        ("b", [entry("a", "first"), entry("b", status=Status.LOADED)], (), LandedContent("made")),
        ("a", [entry("a", "first"), entry("b", status=Status.LOADED)], (), LandedContent("first", 2)),
    ],
)
def test_what_bytes_count_as(path: str, entries: list[LedgerEntry], held: tuple[str, ...], found: LandedContent) -> None:
    assert landed_content(path, "made", entries, held) == found


def test_a_file_stays_that_another_table_keeps() -> None:
    source = replace(new_source("code"), landed=LandedCopy.REWRITE)
    other = replace(new_source("code"), pattern="**/*.csv")
    rewrite = LandedRewrite(DuckDB(catalog=UnityCatalog()), LandingZone(url="/nowhere"), [source, other])
    found = rewrite.refusal(source, "", source.pattern.replace("*", "1"), (), "Ann")
    assert found == f"{other.table_name} has rows of it, too, and declares `landed: keep`"

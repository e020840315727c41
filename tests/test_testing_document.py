"""docs/testing.md is as the last recorded runs left it."""

from tests.long_tier import LongTier
from tests.run_record import Measured
from tests.testing_document import BEGIN, PAGE, generated, page


def test_the_page_has_what_was_recorded() -> None:
    """A recorded run writes it: `make test PYTEST_ADDOPTS=--record`, `make test-long`."""
    assert BEGIN in PAGE.read_text()
    assert PAGE.read_text() == page(Measured.read(), LongTier.read())


def test_each_tier_is_counted() -> None:
    measured = Measured(
        {"tests/ingest/test_a.py": 40.0, "tests/test_house.py": 2.4},
        {"tests/ingest/test_a.py::test_one": 12.3},
        {"tests/ingest/test_a.py": {"unit": 3, "usual": 2, "long": 1}, "tests/test_house.py": {"unit": 5}},
    )
    tier = LongTier()
    tier.add("tests/ingest/test_a.py::test_two", "code", 1234.0, "2026-01-02, abcdef0")
    shown = generated(measured, tier)
    for row in (
        *("| `ingest` | 3 | 2 | 1 | 40 |", "| `tests` | 5 | 0 | 0 | 2 |", "| all | 8 | 2 | 1 | 42 |"),
        *(
            "| `test_a.py::test_one` | 12 |",
            "| 2026-01-02, abcdef0 | 1 |",
            "| `ingest/test_a.py` | 1,234 |",
        ),
    ):
        assert f"{row}\n" in shown

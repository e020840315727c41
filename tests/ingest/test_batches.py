"""How landed files are grouped into load batches."""

from hypothesis import given
from hypothesis import strategies as st

from ratify_lakehouse.ingest.load.file_batches import batches
from ratify_lakehouse.landing.landing_zone import LandedFile


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 7), st.integers(1, 100))
def test_batches_are_bounded_and_lose_nothing(sizes: list[int], max_files: int, max_bytes: int) -> None:
    files = [LandedFile(f"{number:03}.csv", size, "f") for number, size in enumerate(sizes)]
    made = list(batches(files, max_files, max_bytes))
    assert [file for batch in made for file in batch] == files
    assert all(len(batch) <= max_files for batch in made)
    assert all(len(batch) == 1 or sum(file.size for file in batch) <= max_bytes for batch in made)

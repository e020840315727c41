"""Which files a compaction puts together, and which it leaves."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ratify_lakehouse.delta.compaction_bins import bins_of
from ratify_lakehouse.delta.snapshot import LiveFile

TARGET = 100


def file(number: int, size: int, day: str | None = None, deleted: int = 0, **more: Any) -> LiveFile:
    vector = {"storageType": "i", "pathOrInlineDv": str(number), "cardinality": deleted}
    add = {"path": f"{number}.parquet", "size": size, "partitionValues": {"day": day}, "stats": '{"numRecords":100}'}
    return LiveFile(add | ({"deletionVector": vector} if deleted else {}) | more, None)


FILES = st.lists(
    st.tuples(st.integers(1, 200), st.sampled_from([None, "", "1", "2"]), st.sampled_from([0, 0, 1, 5, 6, 100])), max_size=40
).map(lambda rows: [file(number, *row) for number, row in enumerate(rows)])


@given(FILES)
def test_each_file_is_in_one_bin_at_most(files: list[LiveFile]) -> None:
    bins = bins_of(files, TARGET)
    taken = [file.path for bin_ in bins for file in bin_.files]
    assert len(taken) == len(set(taken))
    left = [file for file in files if file.path not in taken]
    for bin_ in bins:
        assert {file.add["partitionValues"]["day"] for file in bin_.files} == {bin_.partition_values["day"]}
        assert len(bin_.files) == 1 or bin_.size <= TARGET
        assert len(bin_.files) > 1 or (bin_.files[0].rows or 0) < 95, "a file alone only to drop deleted rows"
    for day in (None, "", "1", "2"):
        of_day = [file for file in left if file.add["partitionValues"]["day"] == day]
        assert sum(file.add["size"] < TARGET // 2 for file in of_day) <= 1, "one has no other to go with"
        assert all((file.rows or 0) >= 95 for file in of_day), "many deleted rows are dropped"


@given(FILES)
def test_a_second_compaction_has_little_to_do(files: list[LiveFile]) -> None:
    bins = bins_of(files, TARGET)
    taken = {file.path for bin_ in bins for file in bin_.files}
    made = [file(1000 + number, bin_.size, bin_.partition_values["day"]) for number, bin_ in enumerate(bins)]
    again = bins_of([*(file for file in files if file.path not in taken), *made], TARGET)
    # The last bin of a partition is small where its rows are few.
    assert len(again) <= 4


def test_clustered_files_stay_and_a_bin_has_not_too_many_files() -> None:
    clustered = [file(number, 1, clusteringProvider="liquid") for number in range(3)]
    assert bins_of(clustered, TARGET) == []
    sizes = [len(bin_.files) for bin_ in bins_of([file(number, 1) for number in range(1201)], 10_000)]
    assert sizes == [500, 500, 201]

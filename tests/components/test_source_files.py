"""Files as the source of a sync: their columns go by name, and each is known by itself."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from ratify_lakehouse.components.syncs.source_files import by_header, file_inputs, local_files, new_files
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration, SyncSource, SyncStrategy
from ratify_lakehouse.delta.computed_inputs import InputVersion
from ratify_lakehouse.errors import SyncRefused
from ratify_lakehouse.sql.table_query import TableName


def of_files(pattern: Path) -> SyncDeclaration:
    return SyncDeclaration("s", SyncSource(files=str(pattern), format="csv"), TableName("bronze", "t"), SyncStrategy.APPEND)


def grouped(folder: Path, *texts: str, blank_lines: bool = True) -> list[list[str]]:
    for number, text in enumerate(texts):
        (folder / f"{number}.csv").write_text(text)
    sync = of_files(folder / "*.csv")
    found = by_header(sync, local_files(sync), blank_lines=blank_lines)
    return [[path.name for path in paths] for paths in found.values()]


def test_files_with_columns_in_the_same_order_are_read_together(tmp_path: Path) -> None:
    assert grouped(tmp_path, "id,v\n1,a\n", "v,id\na,1\n", "", "id,v\n", "\nid,v\n", '"V","Id"\n') == [
        ["0.csv", "3.csv", "4.csv"],
        ["1.csv"],
        ["5.csv"],
    ]


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (("id,v\n", "id,w\n"), "0.csv has id, v; 1.csv has id, w"),
        (("id,v\n", "id\n"), "0.csv has id, v; 1.csv has id"),
        (("id,v,v\n", "v,id,v\n"), "0.csv has id, v, v"),
        (("id,v\n", "\nid,v\n"), "1.csv has none"),
        (("", ""), "they are empty"),
    ],
)
def test_files_with_other_columns_are_refused(tmp_path: Path, texts: tuple[str, ...], reason: str) -> None:
    with pytest.raises(SyncRefused, match="do not all have the same columns") as refused:
        grouped(tmp_path, *texts, blank_lines=False)
    assert reason in str(refused.value)


def test_columns_of_one_name_stay_in_their_places(tmp_path: Path) -> None:
    assert grouped(tmp_path, "id,v,v\n", "id,v,v\n1,a,b\n") == [["0.csv", "1.csv"]]


def test_each_file_counts_for_itself(tmp_path: Path) -> None:
    sync, inserted = of_files(tmp_path / "*.csv"), list[Mapping[str, InputVersion]]()

    def new() -> list[str]:
        found = new_files(sync, lambda inputs, not_before=0: 0 if inputs in inserted else None)
        inserted.extend(found.values())
        return [path.name for path in found]

    with pytest.raises(SyncRefused, match="There is no file at"):
        new()
    for name in ("b.csv", "c.csv"):
        (tmp_path / name).write_text("id\n1\n")
    assert new() == ["b.csv", "c.csv"]
    # As a sync of one file is known.
    assert file_inputs(sync, [tmp_path / "b.csv"]) in inserted
    (tmp_path / "a.csv").write_text("id\n1\n")
    assert (new(), new()) == (["a.csv"], [])
    (tmp_path / "b.csv").write_text("id\n2\n")
    (tmp_path / "c.csv").unlink()
    assert (new(), new()) == (["b.csv"], [])

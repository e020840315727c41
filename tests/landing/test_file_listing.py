"""Pages of what a store holds: in order, from any path on, on a disk, in S3 and in any other store of fsspec."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratify_lakehouse.landing.file_listing import is_data, is_text, look, name_on_disk, pages, path_of_name
from ratify_lakehouse.landing.file_moves import Moved, archive
from ratify_lakehouse.landing.landing_zone import LandingZone, folder_of, matcher
from ratify_lakehouse.landing.named_files import NamedFiles
from tests.embedded.catalog.s3_server import BUCKET, MotoS3, moto_s3

NAMES = ["a.csv", "a/1.csv", "a/z/9.csv", "a0.csv", "b-1.csv", "b/2.csv", "b/3.csv", "ba/4.csv", "é/5.csv", "Z.csv"]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[MotoS3]:
    with moto_s3(monkeypatch) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield server


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.server), "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, str]:
    if request.param == "s3":
        request.getfixturevalue("s3")
    url = {"disk": str(tmp_path), "s3": f"s3://{BUCKET}/zone", "memory": f"memory://zone-{uuid4().hex}"}[request.param]
    return fsspec.url_to_fs(url)


def put(fs: Any, root: str, *names: str) -> None:
    for name in names:
        fs.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
        fs.pipe_file(f"{root}/{name}", name.encode())


def test_every_page_size_and_every_beginning_give_the_same_order(store: tuple[Any, str]) -> None:
    fs, root = store
    put(fs, root, *NAMES)
    for size in (1, 3, 100):
        listed = list(pages(fs, root, size=size))
        assert [file.path for page in listed for file in page] == sorted(NAMES)
        assert {len(page) for page in listed[:-1]} <= {size}
    for after in [*NAMES, "", "a/", "a/z", "zzz", "b/2"]:
        rest = [file.path for page in pages(fs, root, after=after, size=2) for file in page]
        assert rest == sorted(name for name in NAMES if name > after), after


def test_a_folder_is_listed_alone(store: tuple[Any, str]) -> None:
    fs, root = store
    put(fs, root, *NAMES)
    assert [f.path for page in pages(fs, root, "b/") for f in page] == ["b/2.csv", "b/3.csv"]
    assert [f.path for page in pages(fs, root, "b/", "b/2.csv") for f in page] == ["b/3.csv"]
    assert list(pages(fs, root, "nowhere/")) == []


def test_one_file_looks_as_in_a_listing(store: tuple[Any, str]) -> None:
    fs, root = store
    put(fs, root, *NAMES)
    for page in pages(fs, root):
        for file in page:
            seen = look(fs, root, file.path)
            assert (seen, seen.modified if seen else None) == (file, file.modified)
    for path in ("nothing.csv", "a", "a.csv/b.csv", "x" * 300 + ".csv"):
        assert look(fs, root, path) is None


def test_an_s3_listing_pages_through_more_than_one_answer(s3: MotoS3) -> None:
    names = [f"trips/{number:04}.csv" for number in range(2500)]
    s3.put(*(f"zone/{name}" for name in names))
    zone = LandingZone(url=f"s3://{BUCKET}/zone")
    assert [len(page) for page in zone.pages("trips/")] == [1000, 1000, 500]
    assert [file.path for file in zone.files("trips/*.csv")] == names
    assert [file.path for page in zone.pages("trips/", names[2400]) for file in page] == names[2401:]
    assert zone.look([names[7], "trips/none.csv"]) == [zone.files(names[7])[0]]


NAMES_OF_BYTES = (
    b"\xff.csv",
    "caf\u00e9.csv".encode("latin-1"),
    "caf\u00e9.csv".encode(),
    b"\xef\xbf\xbf.csv",
    "\uefff.csv".encode(),
)


def test_a_name_of_any_bytes_is_a_path(tmp_path: Path) -> None:
    """It is listed, found, read and moved, and no two names are one path."""
    folder = os.fsdecode(bytes(tmp_path) + b"/in\xfcer")
    Path(folder).mkdir()
    for name in NAMES_OF_BYTES:
        Path(folder, os.fsdecode(name)).write_bytes(name)
    zone = LandingZone(url=str(tmp_path))
    files = zone.files("**/*.csv")
    assert [file.path.encode() for file in files] == sorted(file.path.encode() for file in files)
    assert zone.look([file.path for file in files]) == files
    assert {zone.read(file.path) for file in files} == {*NAMES_OF_BYTES}
    assert zone.fetch(files[0].path, tmp_path).local.read_bytes() in NAMES_OF_BYTES
    assert [file.path for page in zone.pages("", files[1].path) for file in page] == [file.path for file in files[2:]]
    for file in files:
        assert archive(zone, file.path, file.fingerprint, "_archive") is Moved.DONE
    assert {os.fsencode(path.name) for path in (tmp_path / "_archive").rglob("*.csv")} == {*NAMES_OF_BYTES}
    assert zone.files("**/*.csv") == []


@given(st.binary(min_size=1).filter(lambda name: not {0, ord("/")} & {*name}))
def test_names_and_paths_are_pairs(name: bytes) -> None:
    path = path_of_name(os.fsdecode(name))
    assert os.fsencode(name_on_disk(path)) == name
    assert is_text(path)


def test_a_file_is_named_by_its_bytes(tmp_path: Path) -> None:
    place = os.fsdecode(bytes(tmp_path) + b"/caf\xe9.csv")
    Path(place).write_bytes(b"a")
    (file,) = NamedFiles(url=str(tmp_path)).named(place)
    assert file.path == "caf\uefe9.csv"
    (tmp_path / "zone").mkdir()
    zone = NamedFiles(url=str(tmp_path / "zone"))
    (elsewhere,) = zone.named(place)
    assert zone.fetch(elsewhere.path, tmp_path).local.read_bytes() == b"a"


def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    fs, root = fsspec.url_to_fs(str(tmp_path))
    put(fs, root, "good.csv", "inner/deep.csv")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "dangling.csv").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "link.csv").symlink_to(tmp_path / "good.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    assert [file.path for page in pages(fs, root) for file in page] == ["good.csv", "inner/deep.csv", "link.csv"]


@pytest.mark.parametrize("path", ["1.csv", "a/1.CSV.gz", "a/b/1.jsonl", "1.parquet", "1.json.zst", "é.csv"])
def test_data(path: str) -> None:
    assert is_data(path)


@pytest.mark.parametrize(
    "path", ["_a/1.csv", "a/_b/1.csv", ".a/1.csv", "a/.1.csv", "1.csv.part", "1.txt", "csv", "1.csv.bz2"]
)
def test_no_data(path: str) -> None:
    assert not is_data(path)


@pytest.mark.parametrize(
    ("pattern", "folder", "matching", "other"),
    [
        ("trips/*.csv", "trips/", "trips/1.csv", "trips/a/1.csv"),
        ("trips/*.csv", "trips/", "trips/.csv", "old/trips/1.csv"),
        ("trips/**/*.csv", "trips/", "trips/a/b/1.csv", "trips/1.json"),
        ("reference/pro[dj]*.csv", "reference/", "reference/products.csv", "reference/pro.csv"),
        ("*.csv", "", "1.csv", "a/1.csv"),
        ("**", "", "a/b/1.csv", ""),
        ("a/b/c.csv", "a/b/", "a/b/c.csv", "a/b/c.csv.gz"),
    ],
)
def test_globs(pattern: str, folder: str, matching: str, other: str) -> None:
    matches = matcher(pattern)
    assert folder_of(pattern) == folder
    assert matches(matching)
    assert not other or not matches(other)


@given(st.lists(st.text(st.sampled_from("ab-/.é"), min_size=1, max_size=6), max_size=12), st.text("ab-/é", max_size=4))
def test_the_order_is_that_of_the_paths(tmp_path_factory: pytest.TempPathFactory, names: list[str], after: str) -> None:
    root, made = tmp_path_factory.mktemp("zone"), set[str]()
    for name in names:
        parts = [part for part in name.split("/") if part and part[0] != "."]
        path = root.joinpath(*parts).with_suffix(".csv") if parts else root / "x.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        made.add(path.relative_to(root).as_posix())
    fs, place = fsspec.url_to_fs(str(root))
    assert [f.path for page in pages(fs, place, after=after, size=2) for f in page] == sorted(p for p in made if p > after)

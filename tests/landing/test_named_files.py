"""Files by name: one name for a file however it was written, and the same file as the listing shows."""

from pathlib import Path

import pytest

from ratify_lakehouse.errors import LandingUnavailable
from ratify_lakehouse.landing.named_files import NamedFiles
from tests.embedded.catalog.s3_server import BUCKET, moto_s3


@pytest.fixture
def zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NamedFiles:
    for name in ("landing/trips/1.csv", "out/1.csv", "out/deep/2.csv", "out/.3.csv", "out/_4.csv", "out/notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"name\n{name}\n")
    monkeypatch.chdir(tmp_path)
    return NamedFiles(url=str(tmp_path / "landing"))


@pytest.mark.parametrize(
    ("place", "paths"),
    [
        ("landing", ["trips/1.csv"]),
        ("landing/trips/1.csv", ["trips/1.csv"]),
        ("out/../landing/*/1.csv", ["trips/1.csv"]),
        ("out/1.csv", ["out/1.csv"]),
        ("./out/deep/../1.csv", ["out/1.csv"]),
        ("out/*.csv", ["out/1.csv"]),
        ("out/**/*.csv", ["out/1.csv", "out/deep/2.csv"]),
        ("out", ["out/1.csv", "out/deep/2.csv"]),
        ("out/notes.txt", ["out/notes.txt"]),
        ("out/nothing-*.csv", []),
    ],
)
def test_what_a_name_stands_for(zone: NamedFiles, tmp_path: Path, place: str, paths: list[str]) -> None:
    wanted = [path if path.startswith("trips/") else f"{tmp_path.as_uri()}/{path}" for path in paths]
    assert [file.path for file in zone.named(place)] == wanted
    if ".." not in place:
        assert [file.path for file in zone.named(f"{tmp_path.as_uri()}/{place}")] == wanted


def test_a_name_that_is_none(zone: NamedFiles) -> None:
    with pytest.raises(LandingUnavailable, match=r"There is no \S*/out/5\.csv"):
        zone.named("out/5.csv")


def test_a_file_is_fetched_under_its_name(zone: NamedFiles, tmp_path: Path) -> None:
    (inside,), (outside,) = zone.named("landing"), zone.named("out/1.csv")
    fetched = [zone.fetch(file.path, tmp_path) for file in (inside, outside)]
    assert [one.path for one in fetched] == [inside.path, outside.path]
    assert [one.local.read_text() for one in fetched] == ["name\nlanding/trips/1.csv\n", "name\nout/1.csv\n"]


@pytest.mark.server
def test_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with moto_s3(monkeypatch) as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.url)
        for key in ("landing/trips/a b+c.csv", "out/1.csv"):
            s3.client().put_object(Bucket=BUCKET, Key=key, Body=b"name\n1\n")
        zone = NamedFiles(url=f"s3://{BUCKET}/landing")
        (listed,) = zone.files()
        assert listed.path == "trips/a b+c.csv"
        for place in ("/landing", "/landing/trips/a b+c.csv", "/landing/*/*.csv"):
            assert [file.fingerprint for file in zone.named(f"s3://{BUCKET}{place}")] == [listed.fingerprint]
        assert [file.path for file in zone.named(f"s3://{BUCKET}/")] == [f"s3://{BUCKET}/out/1.csv", listed.path]
        (outside,) = zone.named(f"s3://{BUCKET}/out/*.csv")
        assert zone.fetch(outside.path, tmp_path).local.read_bytes() == b"name\n1\n"

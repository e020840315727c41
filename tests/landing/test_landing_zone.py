"""The landing zone: what is listed, what is not, and that a failure never passes for an empty listing."""

import hashlib
import os
from pathlib import Path
from uuid import uuid4

import fsspec
import pytest

from ratify_lakehouse.errors import LandingUnavailable
from ratify_lakehouse.landing.landing_zone import LandingZone


@pytest.fixture(params=["local", "object store"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "landing") if request.param == "local" else f"memory://landing-{uuid4().hex}"


def put(root: str, path: str, content: bytes = b"a,b\n1,2\n") -> None:
    fs, base = fsspec.url_to_fs(root)
    fs.makedirs(f"{base}/{path}".rpartition("/")[0], exist_ok=True)
    fs.pipe_file(f"{base}/{path}", content)


def test_files_are_listed_by_pattern_and_sorted(root: str) -> None:
    for path in ("trips/2.csv", "trips/1.csv", "trips/deep/3.csv", "reference/products.csv", "trips/UPPER.CSV"):
        put(root, path)
    zone = LandingZone(url=root)
    assert [file.path for file in zone.files("trips/*.csv")] == ["trips/1.csv", "trips/2.csv"]
    assert [file.path for file in zone.files("reference/products*.csv")] == ["reference/products.csv"]
    assert [file.path for file in zone.files("nothing/*.csv")] == []
    assert {file.size for file in zone.files("trips/*.csv")} == {8}


def test_files_in_the_making_are_left_out(root: str) -> None:
    for name in (".1.csv.part", ".hidden.csv", "_tmp.csv", "1.csv.part", "1.csv.tmp", "notes.txt", "good.csv"):
        put(root, f"trips/{name}")
    assert [file.path for file in LandingZone(url=root).files("trips/*")] == ["trips/good.csv"]


def test_moved_and_hidden_folders_are_left_out(root: str) -> None:
    for path in ("_archive/trips/1.csv", "trips/_dead/2.csv", ".x/3.csv", "trips/4.csv", "trips/5.jsonl.gz"):
        put(root, path)
    assert [file.path for file in LandingZone(url=root).files()] == ["trips/4.csv", "trips/5.jsonl.gz"]


def test_named_files_are_shown_as_in_the_listing(root: str) -> None:
    for path in ("trips/1.csv", "trips/2.csv"):
        put(root, path)
    zone = LandingZone(url=root)
    assert zone.look(["trips/2.csv", "trips/none.csv", "trips/1.csv"]) == zone.files("trips/*.csv")[::-1]
    with pytest.raises(LandingUnavailable, match="does not exist"):
        LandingZone(url=f"{root}/none").look(["trips/1.csv"])


def test_a_missing_zone_is_no_empty_zone(root: str) -> None:
    with pytest.raises(LandingUnavailable, match=r"does not exist: create it, or set LANDING_URL"):
        LandingZone(url=root).files()


def test_files_that_land_between_two_listings_are_seen(root: str) -> None:
    put(root, "trips/1.csv")
    zone = LandingZone(url=root)
    assert len(zone.files("trips/*.csv")) == 1
    put(root, "trips/2.csv")
    assert len(zone.files("trips/*.csv")) == 2


def test_fetch_hashes_the_bytes_that_it_copies(root: str, tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    put(root, "trips/1.csv", content)
    put(root, "trips/2.csv", b"other")
    zone = LandingZone(url=root)
    one, two = (zone.fetch(f"trips/{n}.csv", tmp_path) for n in (1, 2))
    assert one.sha256 == hashlib.sha256(content).hexdigest() == hashlib.sha256(one.local.read_bytes()).hexdigest()
    assert (one.size, one.path, two.local.read_bytes()) == (len(content), "trips/1.csv", b"other")
    assert zone.read("trips/1.csv") == content


@pytest.mark.parametrize("path", ["trips/gone.csv", "gone/gone.csv"])
def test_a_missing_file(root: str, tmp_path: Path, path: str) -> None:
    put(root, "trips/1.csv")
    with pytest.raises(LandingUnavailable, match="Check LANDING_URL"):
        LandingZone(url=root).fetch(path, tmp_path)
    with pytest.raises(LandingUnavailable, match="FileNotFoundError"):
        LandingZone(url=root).read(path)


def test_a_changed_file_has_another_fingerprint_and_an_untouched_one_the_same(tmp_path: Path) -> None:
    for name in ("1", "2", "3"):
        put(str(tmp_path), f"trips/{name}.csv")
    zone = LandingZone(url=str(tmp_path))
    before = {file.path: file.fingerprint for file in zone.files("trips/*.csv")}
    # As long as before, an hour older: a correction that came late.
    one = tmp_path / "trips" / "1.csv"
    one.write_bytes(b"x,y\n8,9\n")
    os.utime(one, (one.stat().st_atime - 3600, one.stat().st_mtime - 3600))
    # Longer, with the very same time.
    two = tmp_path / "trips" / "2.csv"
    times = (two.stat().st_atime_ns, two.stat().st_mtime_ns)
    two.write_bytes(b"a,b\n1,2\n3,4\n")
    os.utime(two, ns=times)
    after = {file.path: file.fingerprint for file in zone.files("trips/*.csv")}
    assert [path for path in before if before[path] != after[path]] == ["trips/1.csv", "trips/2.csv"]


def test_modification_times_are_utc(tmp_path: Path) -> None:
    put(str(tmp_path), "1.csv")
    os.utime(tmp_path / "1.csv", (1_357_000_000, 1_357_000_000))
    (file,) = LandingZone(url=str(tmp_path)).files()
    assert file.modified_at is not None
    assert file.modified_at.isoformat() == "2013-01-01T00:26:40+00:00"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_is_no_empty_folder(tmp_path: Path) -> None:
    put(str(tmp_path), "trips/1.csv")
    put(str(tmp_path), "trips/closed/2.csv")
    (tmp_path / "trips" / "closed").chmod(0)
    try:
        with pytest.raises(LandingUnavailable, match="PermissionError"):
            LandingZone(url=str(tmp_path)).files("trips/**/*.csv")
    finally:
        (tmp_path / "trips" / "closed").chmod(0o755)


def test_a_store_that_is_not_installed_or_known() -> None:
    with pytest.raises(LandingUnavailable, match="nosuchstore"):
        LandingZone(url="nosuchstore://bucket/x").files()


def test_the_default_zone_is_in_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LANDING_URL", raising=False)
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    put(str(tmp_path), "landing/1.csv")
    assert [file.path for file in LandingZone().files()] == ["1.csv"]

"""Archive, deletion and dead letters: nothing is lost, whatever happens in the middle."""

import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest

from ratify_lakehouse.errors import LandingUnavailable
from ratify_lakehouse.landing import file_moves
from ratify_lakehouse.landing.file_moves import Moved, archive, dead_letter, delete, overwrite
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.embedded.catalog.s3_server import BUCKET
from tests.landing.test_file_listing import put, s3

__all__ = ["s3"]
PATH = "trips/1.csv"


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.server), "memory"])
def zone(request: pytest.FixtureRequest, tmp_path: Path) -> LandingZone:
    if request.param == "s3":
        request.getfixturevalue("s3")
    url = {"disk": str(tmp_path), "s3": f"s3://{BUCKET}/zone", "memory": f"memory://zone-{uuid4().hex}"}[request.param]
    put(*fsspec.url_to_fs(url), PATH)
    return LandingZone(url=url)


def mark(zone: LandingZone, path: str = PATH) -> str:
    (file,) = zone.look([path])
    return file.fingerprint


def rewrite(zone: LandingZone, content: bytes, path: str = PATH) -> None:
    with zone.opened() as (fs, root):
        fs.pipe_file(f"{root}/{path}", content)


def there(zone: LandingZone) -> dict[str, bytes]:
    with zone.opened() as (fs, root):
        return {path[len(root) :].lstrip("/"): fs.cat_file(path) for path in fs.find(root)}


def test_archive_keeps_the_path_and_hides_the_file(zone: LandingZone) -> None:
    assert archive(zone, PATH, mark(zone), "_archive") is Moved.DONE
    assert there(zone) == {f"_archive/{PATH}": PATH.encode()}
    assert zone.files() == []


def test_a_dead_letter_has_its_reason_beside_it(zone: LandingZone) -> None:
    version = mark(zone)
    assert dead_letter(zone, PATH, version, "_dead_letter", "no header") is Moved.DONE
    found = there(zone)
    assert sorted(found) == [f"_dead_letter/{PATH}", f"_dead_letter/{PATH}.reason.json"]
    reason = json.loads(found[f"_dead_letter/{PATH}.reason.json"])
    assert reason == {"path": PATH, "bytes": len(PATH), "fingerprint": version, "reason": "no header"}
    assert zone.files() == []


def test_only_the_version_that_is_meant_is_touched(zone: LandingZone) -> None:
    version = mark(zone)
    rewrite(zone, b"something else")
    calls = (
        archive(zone, PATH, version, "_archive"),
        delete(zone, PATH, version),
        dead_letter(zone, PATH, version, "_dead_letter", "bad"),
    )
    assert set(calls) == {Moved.CHANGED}
    assert there(zone) == {PATH: b"something else"}


def test_a_file_is_overwritten_in_one_step(zone: LandingZone, tmp_path_factory: pytest.TempPathFactory) -> None:
    new = tmp_path_factory.mktemp("new") / "file"
    new.write_bytes(b"shorter")
    version = mark(zone)
    assert overwrite(zone, PATH, version, new) is Moved.DONE
    assert there(zone) == {PATH: b"shorter"}
    new.write_bytes(b"too late")
    assert overwrite(zone, PATH, version, new) is Moved.CHANGED
    assert overwrite(zone, "trips/2.csv", version, new) is Moved.MISSING
    assert there(zone) == {PATH: b"shorter"}


@pytest.mark.parametrize("step", ["copyfile", "copymode", "sync", "replace"])
def test_a_crash_while_overwriting_leaves_one_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    zone, new = LandingZone(url=str(tmp_path)), tmp_path_factory.mktemp("new") / "file"
    put(*fsspec.url_to_fs(zone.url), PATH)
    (tmp_path / PATH).chmod(0o640)
    new.write_bytes(b"shorter")
    version, owner = mark(zone), {"sync": file_moves, "replace": Path}.get(step, file_moves.shutil)

    def killed(*_: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, killed)
        with pytest.raises(Killed):
            overwrite(zone, PATH, version, new)
    assert (tmp_path / PATH).read_bytes() == PATH.encode()
    assert [file.path for file in zone.files()] == [PATH]
    assert overwrite(zone, PATH, version, new) is Moved.DONE
    assert there(zone) == {PATH: b"shorter"}
    assert (tmp_path / PATH).stat().st_mode & 0o777 == 0o640


def test_a_missing_file_is_reported(zone: LandingZone) -> None:
    version = mark(zone)
    assert delete(zone, PATH, version) is Moved.DONE
    assert {archive(zone, PATH, version, "_archive"), delete(zone, PATH, version)} == {Moved.MISSING}
    assert there(zone) == {}


def test_a_second_version_of_a_path_goes_beside_the_first(zone: LandingZone) -> None:
    archive(zone, PATH, mark(zone), "_archive")
    rewrite(zone, b"second")
    version = mark(zone)
    assert archive(zone, PATH, version, "_archive") is Moved.DONE
    assert there(zone) == {f"_archive/{PATH}": PATH.encode(), f"_archive/trips/1.{version}.csv": b"second"}


class Killed(BaseException):
    """What a kill looks like from inside: nothing after it runs."""


@pytest.mark.parametrize("step", ["_copy", "_same_bytes", "sync", "_deleted"])
@pytest.mark.parametrize("before", [True, False])
def test_a_crash_in_the_middle_is_ended_by_the_next_call(
    zone: LandingZone, monkeypatch: pytest.MonkeyPatch, step: str, before: bool
) -> None:
    if step == "sync" and "://" in zone.url:
        pytest.skip("only a disk is synced")
    version, whole = mark(zone), getattr(file_moves, step)

    def killed(*given: Any) -> Any:
        if not before:
            whole(*given)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(file_moves, step, killed)
        with pytest.raises(Killed):
            dead_letter(zone, PATH, version, "_dead_letter", "bad")
    # The file is in one place at least, whole, and a listing shows it at most where it landed.
    assert PATH.encode() in there(zone).values()
    assert {file.path for file in zone.files()} <= {PATH}
    again = dead_letter(zone, PATH, version, "_dead_letter", "bad")
    assert again is (Moved.MISSING if (step, before) == ("_deleted", False) else Moved.DONE)
    found = there(zone)
    assert sorted(found) == [f"_dead_letter/{PATH}", f"_dead_letter/{PATH}.reason.json"]
    assert found[f"_dead_letter/{PATH}"] == PATH.encode()


def test_a_file_that_is_rewritten_during_the_copy_stays(zone: LandingZone, monkeypatch: pytest.MonkeyPatch) -> None:
    version, compare = mark(zone), file_moves._same_bytes

    def rewritten(*given: Any) -> bool:
        rewrite(zone, b"newer")
        return compare(*given)

    monkeypatch.setattr(file_moves, "_same_bytes", rewritten)
    assert archive(zone, PATH, version, "_archive") is Moved.CHANGED
    assert there(zone) == {PATH: b"newer"}


def test_a_copy_that_differs_from_an_unchanged_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = LandingZone(url=str(tmp_path))
    put(*fsspec.url_to_fs(zone.url), PATH)
    monkeypatch.setattr(file_moves, "_same_bytes", lambda *_: False)
    with pytest.raises(LandingUnavailable, match="differs from it"):
        archive(zone, PATH, mark(zone), "_archive")
    assert there(zone) == {PATH: PATH.encode()}


def test_a_rewrite_of_the_same_size_is_seen(tmp_path: Path) -> None:
    zone = LandingZone(url=str(tmp_path))
    put(*fsspec.url_to_fs(zone.url), PATH)
    version = mark(zone)
    (tmp_path / PATH).write_bytes(b"x" * len(PATH))
    os.utime(tmp_path / PATH, (1, 1))
    assert delete(zone, PATH, version) is Moved.CHANGED

"""The landing zone: where files arrive, on a local disk or in an object store (fsspec)."""

import datetime as dt
import hashlib
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, cast

import dagster as dg
from pydantic import Field

from resources.errors import LandingUnavailable
from resources.settings import Settings

_CHUNK = 1 << 20


@dataclass(frozen=True, order=True)
class LandedFile:
    """A file as the listing shows it.

    Attributes:
        path: Relative to the landing zone's root, with `/`.
        size: Bytes.
        fingerprint: Changes whenever the store says that the file changed (etag, else modification time and size).
        modified_at: When the store last saw it change (UTC), where the store says.
    """

    path: str
    size: int
    fingerprint: str
    modified_at: dt.datetime | None = None


@dataclass(frozen=True)
class FetchedFile:
    """A file's bytes as they were read once: a local copy and the SHA-256 of just those bytes."""

    path: str
    local: Path
    sha256: str
    size: int


class LandingZone(dg.ConfigurableResource[Any]):
    """The landing zone."""

    url: str = Field(default="", description="Path or URL (s3://…); empty: LANDING_URL, else RATIFY_HOME/landing")

    @property
    def root(self) -> str:
        """The path or URL of the landing zone."""
        return self.url or Settings().landing

    def files(self, pattern: str = "**") -> list[LandedFile]:
        """List the landed CSV files whose relative path matches a glob, sorted by path.

        Names that begin with `.` or `_` are files in the making and are left out.

        Raises:
            LandingUnavailable: the listing failed. That is not the same as "no files".
        """
        with self._opened() as (fs, root):
            if not fs.exists(root):
                raise LandingUnavailable(
                    f"The landing zone {self.root} does not exist: create it, or set LANDING_URL to where files land."
                )
            # on_error: a folder that cannot be read must not pass for an empty one.
            walked = fs.walk(root, detail=True, on_error="raise")
            found = [info for _, _, files in walked for info in files.values()]
        listed = (_landed_file(info, root) for info in found)
        return sorted(file for file in listed if _is_csv(file.path) and PurePosixPath(file.path).match(pattern))

    def look_up(self, path: str) -> LandedFile | None:
        """Return one file as the listing shows it, or None where there is none, without listing the others.

        Raises:
            LandingUnavailable: the store does not answer, or refuses.
        """
        with self._opened() as (fs, root):
            try:
                info = fs.info(f"{root}/{path}")
            except FileNotFoundError:
                return None
        return _landed_file(info, root) if info["type"] == "file" else None

    def read(self, path: str) -> bytes:
        """Return a file's bytes.

        Raises:
            LandingUnavailable: the file cannot be read.
        """
        with self._opened() as (fs, root):
            return bytes(fs.cat_file(f"{root}/{path}"))

    def fetch(self, path: str, into: Path) -> FetchedFile:
        """Copy a file into a local folder, hashing the very bytes that are copied.

        Raises:
            LandingUnavailable: the file cannot be read.
        """
        digest, size = hashlib.sha256(), 0
        local = into / hashlib.sha256(path.encode()).hexdigest()[:16]
        with self._opened() as (fs, root), fs.open(f"{root}/{path}", "rb") as source, local.open("wb") as target:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                target.write(chunk)
        return FetchedFile(path, local, digest.hexdigest(), size)

    @contextmanager
    def _opened(self, place: str = "") -> Generator[tuple[Any, str]]:
        import fsspec  # pyright: ignore[reportMissingTypeStubs] it ships none

        place = place or self.root
        try:
            fs, root = cast("tuple[Any, str]", fsspec.url_to_fs(place))  # pyright: ignore[reportUnknownMemberType]
            # A cached listing would hide files that landed since.
            fs.invalidate_cache()
            yield fs, root.rstrip("/")
        except LandingUnavailable:
            raise
        except ImportError as error:
            raise LandingUnavailable(f"{place}: {error} (for S3, install ratify[s3]).") from error
        except Exception as error:
            raise LandingUnavailable(
                f"The landing zone {place} cannot be read: {type(error).__name__}: {error}. Check LANDING_URL, the "
                "network and the permissions."
            ) from error


class NamedFiles(LandingZone):
    """The landing zone, and files elsewhere by their full URL: one name for a file, however a person wrote it."""

    def named(self, place: str) -> list[LandedFile]:
        """Return what a path, glob, folder or URL stands for, sorted; of folders and globs, what a listing would show.

        Files in the landing zone keep their relative path, all others have their URL (`file:///…`, `s3://…`) as path.

        Raises:
            LandingUnavailable: there is nothing of that name, or the store does not answer.
        """
        if "://" not in place:
            place = os.path.normpath(Path(place).absolute())
        with self._opened(place) as (fs, name):
            if _GLOB.search(name):
                found = [info for path, info in fs.glob(name, detail=True).items() if _is_csv(path)]
            elif fs.isdir(name):
                found = [info for path, info in fs.find(name, detail=True).items() if _is_csv(path)]
            elif fs.exists(name):
                found = [fs.info(name)]
            else:
                raise LandingUnavailable(f"There is no {place}: check the name.")
            urls = [fs.unstrip_protocol(info["name"]) for info in found]
        with self._opened() as (fs, root):
            home = f"{fs.unstrip_protocol(root)}/"
        named = zip((url.removeprefix(home) for url in urls), found, strict=True)
        return sorted(replace(_landed_file(info, ""), path=path) for path, info in named if info["type"] == "file")

    def fetch(self, path: str, into: Path) -> FetchedFile:
        """Copy a file into a local folder, as LandingZone.fetch; a URL is copied from where it is."""
        if "://" not in path:
            return super().fetch(path, into)
        folder, _, name = path.rpartition("/")
        return replace(LandingZone(url=folder).fetch(name, into), path=path)


_GLOB = re.compile(r"[*?\[]")


def _is_csv(path: str) -> bool:
    name = PurePosixPath(path).name
    return name.lower().endswith(".csv") and not name.startswith((".", "_"))


def _landed_file(info: dict[str, Any], root: str) -> LandedFile:
    stamp = info.get("ETag") or info.get("etag") or info.get("mtime") or info.get("LastModified") or ""
    size = int(info.get("size") or 0)
    fingerprint = hashlib.sha256(f"{stamp}:{size}".encode()).hexdigest()[:12]
    modified = info.get("LastModified") or info.get("mtime")
    if isinstance(modified, int | float):
        modified = dt.datetime.fromtimestamp(modified, dt.UTC)
    return LandedFile(
        path=str(info["name"])[len(root) :].lstrip("/"),
        size=size,
        fingerprint=fingerprint,
        modified_at=modified if isinstance(modified, dt.datetime) else None,
    )

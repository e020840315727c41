"""The landing zone: where files arrive, on a local disk or in an object store (fsspec)."""

import datetime as dt
import hashlib
import re
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import dagster as dg
from pydantic import Field

from ratify_lakehouse.errors import LandingUnavailable, RatifyError
from ratify_lakehouse.landing.file_listing import Listed, is_data, located, look, pages
from ratify_lakehouse.settings import Settings

_CHUNK = 1 << 20
_READ_AHEAD = 8 << 20
"""Bytes that are asked of an object store at once: s3fs would hold 50 MiB, and for a moment twice that."""
_LOOKS_AT_ONCE = 16


@dataclass(frozen=True, order=True)
class LandedFile:
    """A file as the listing shows it.

    Attributes:
        path: Relative to the landing zone's root, with `/`.
        size: Bytes.
        fingerprint: Changes whenever the file changes, according to the store (etag, else modification time and size).
        modified_at: When the file last changed (UTC), if the store reports it.
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
    # A dependency, which no launchpad offers: the setting that names it, for messages.
    setting: dg.ResourceDependency[str] = Field(default=cast("Any", "LANDING_URL"))

    @property
    def root(self) -> str:
        """The path or URL of the landing zone."""
        return self.url or Settings().landing

    def below(self, folder: str) -> "LandingZone":
        """Return a folder of it, such as the archive, as a landing zone; itself if that is empty."""
        return LandingZone(url=f"{self.root.rstrip('/')}/{folder}") if folder else self

    def files(self, pattern: str = "**") -> list[LandedFile]:
        """List the landed files whose path matches a glob (`**` is any number of folders), sorted by path.

        Left out is what begins with `.` or `_`, files as well as folders, and what cannot hold rows (`SUFFIXES`).

        Raises:
            LandingUnavailable: the listing failed. That is not the same as "no files".
        """
        matches = matcher(pattern)
        return [
            landed(file)
            for page in self.pages(folder_of(pattern))
            for file in page
            if is_data(file.path) and matches(file.path)
        ]

    def pages(self, folder: str = "", after: str = "") -> Generator[list[Listed]]:
        """List the files below a folder in pages, sorted by path, those that sort after `after`; see `listing.pages`.

        Raises:
            LandingUnavailable: the listing failed.
        """
        with self.opened() as (fs, root):
            self._require(fs, root)
            yield from pages(fs, root, folder, after)

    def look(self, paths: Iterable[str]) -> list[LandedFile]:
        """Return those of the named files that exist, as `files` would show them now.

        Raises:
            LandingUnavailable: the landing zone cannot be looked at.
        """
        return [landed(file) for file in self.listed(paths)]

    def listed(self, paths: Iterable[str]) -> list[Listed]:
        """Return those of the named files that exist, as `pages` would show them now.

        Raises:
            LandingUnavailable: the landing zone cannot be looked at.
        """
        with self.opened() as (fs, root), ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
            self._require(fs, root)
            looks = [pool.submit(look, fs, root, path) for path in paths]
            return [file for done in looks if (file := done.result())]

    def read(self, path: str) -> bytes:
        """Return a file's bytes.

        Raises:
            LandingUnavailable: the file cannot be read.
        """
        with self.opened() as (fs, root):
            return bytes(fs.cat_file(located(fs, root, path)))

    def fetch(self, path: str, into: Path) -> FetchedFile:
        """Copy a file into a local folder, hashing the very bytes that are copied.

        Raises:
            LandingUnavailable: the file cannot be read.
        """
        digest, size = hashlib.sha256(), 0
        local = into / hashlib.sha256(path.encode()).hexdigest()[:16]
        with (
            self.opened() as (fs, root),
            fs.open(located(fs, root, path), "rb", block_size=_READ_AHEAD) as source,
            local.open("wb") as target,
        ):
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                target.write(chunk)
        return FetchedFile(path, local, digest.hexdigest(), size)

    @contextmanager
    def opened(self) -> Generator[tuple[Any, str]]:
        """The file system (fsspec) and the landing zone's root as that knows it.

        Raises:
            LandingUnavailable: for any error in the block.
        """
        import fsspec  # pyright: ignore[reportMissingTypeStubs] it ships none

        try:
            fs, root = cast("tuple[Any, str]", fsspec.url_to_fs(self.root))  # pyright: ignore[reportUnknownMemberType]
            # A cached listing would hide files that landed since.
            fs.invalidate_cache()
            yield fs, root.rstrip("/")
        except RatifyError:
            raise
        except ImportError as error:
            raise LandingUnavailable(f"{self.root}: {error} (for S3, install ratify-lakehouse[s3]).") from error
        except Exception as error:
            raise LandingUnavailable(
                f"The landing zone {self.root} cannot be read: {type(error).__name__}: {error}. Check {self.setting}, "
                "the network and the permissions."
            ) from error

    def _require(self, fs: Any, root: str) -> None:
        if not fs.exists(located(fs, root, "")):
            raise LandingUnavailable(
                f"The landing zone {self.root} does not exist: create it, or set {self.setting} to where files land."
            )


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return whether a whole path matches a glob: `*` stays within a folder, `**` is any number of folders."""
    from fsspec.utils import glob_translate  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    compiled = re.compile(glob_translate(pattern))
    return lambda path: compiled.match(path) is not None


def folder_of(pattern: str) -> str:
    """Return the folder, empty or ending with `/`, below which all matches of a glob are."""
    plain = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    return plain.rpartition("/")[0] + "/" if "/" in plain else ""


def landed(file: Listed) -> LandedFile:
    """Return what a store shows of a file as a landed file."""
    modified = None if file.modified is None else dt.datetime.fromtimestamp(file.modified, dt.UTC)
    fingerprint = hashlib.sha256(f"{file.stamp}:{file.size}".encode()).hexdigest()[:12]
    return LandedFile(file.path, file.size, fingerprint, modified)

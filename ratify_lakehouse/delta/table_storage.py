"""Storage of one table's files: a local disk, or an object store with credentials that the catalog vends."""

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from ratify_lakehouse.durable_files import sync, write_durably
from ratify_lakehouse.errors import StorageUnavailable, StorageUnsupported

logger = logging.getLogger(__name__)

# Credentials are renewed this long before they expire, because an upload may take as long.
_RENEW_BEFORE_S = 120

Credentials = Callable[[], list[dict[str, Any]]]
"""Returns the catalog's storage credentials for a table (`DeltaStorageCredential`)."""


@dataclass(frozen=True)
class StoredFile:
    """A file in a table's storage.

    Attributes:
        path: Relative to the table's location.
        size: Bytes.
        modified: When it was written, in seconds since 1970, by the clock of the store or of the disk's machine.
    """

    path: str
    size: int
    modified: float


class TableStorage:
    """Files below a table's location; paths are relative to it, with `/`."""

    def __init__(self, location: str, credentials: Credentials) -> None:
        self._url = urlsplit(location)
        self._location = location
        self._credentials = credentials
        self._fs: Any = None
        self._renew_at = float("inf")

    @property
    def local(self) -> Path | None:
        """The table's folder, if it is on a local disk."""
        return Path(unquote(self._url.path)) if self._url.scheme in {"", "file"} else None

    def read(self, path: str) -> bytes:
        """Return a file's bytes.

        Raises:
            FileNotFoundError: there is no such file.
            StorageUnavailable: the store cannot be read.
        """
        if self.local:
            with self._disk("read", path) as file:
                return file.read_bytes()
        with self._store("read", path) as (fs, name):
            return bytes(fs.cat_file(name))

    @contextmanager
    def downloaded(self, path: str) -> Generator[Path]:
        """Yield a local copy of a file, or the file itself if it is local.

        Raises:
            FileNotFoundError: there is no such file.
            StorageUnavailable: the store cannot be read.
        """
        if self.local:
            if not self.exists(path):
                raise FileNotFoundError(f"{path} is not at {self._location}")
            yield self.local / path
            return
        with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
            file.write(self.read(path))
            file.flush()
            yield Path(file.name)

    def names(self, folder: str, prefix: str = "") -> list[str]:
        """Return the names of the files in a folder that begin with `prefix`, in any order; none if there is no such folder.

        A store lists only these: a folder of the log may have a hundred thousand others.
        """
        with suppress(FileNotFoundError):
            if self.local:
                with self._disk("list", folder) as directory:
                    return [path.name for path in directory.iterdir() if path.name.startswith(prefix)]
            with self._store("list", folder) as (fs, name):
                fs.invalidate_cache(name)
                paths = fs.find(name, prefix=prefix) if prefix else fs.ls(name, detail=False)
                return [path.rsplit("/", 1)[-1] for path in paths]
        return []

    def files(self) -> list[StoredFile]:
        """Return all files, those of the log among them."""
        if self.local:
            with self._disk("list", "") as folder:
                paths = (Path(parent) / name for parent, _, names in os.walk(folder) for name in names)
                return [file for path in paths if (file := _stored(folder, path))]
        with self._store("list", "") as (fs, name):
            fs.invalidate_cache()
            found: dict[str, Any] = fs.find(name, detail=True)
            return [
                StoredFile(path.removeprefix(name), entry["size"], entry["LastModified"].timestamp())
                for path, entry in found.items()
            ]

    def write(self, path: str, content: bytes) -> None:
        """Write a file atomically and durably: after a failure of the machine it is complete, or absent."""
        if self.local:
            with self._disk("write", path) as file:
                # Readable to other users of the machine, as the files of every engine are.
                write_durably(file, content, mode=0o644)
            return
        with self._store("write", path) as (fs, name):
            fs.pipe_file(name, content)

    def put(self, source: Path, path: str) -> None:
        """Copy a local file to `path`; the source stays."""
        if self.local:
            with self._disk("write", path) as target:
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(source, target)
                except OSError:
                    # Another disk, or one without hard links.
                    shutil.copyfile(source, target)
                sync(target)
                sync(target.parent)
            return
        with self._store("write", path) as (fs, name):
            fs.put_file(str(source), name)

    def copy(self, path: str, to: str) -> None:
        """Copy a file to a second name; an existing file of that name is left as it is.

        Two writers that copy at once must copy the same bytes: on a disk without hard links, the second replaces the file of
        the first. Nobody ever sees a part of it.
        """
        if self.local:
            with self._disk("write", to) as target:
                if target.exists():
                    return
                try:
                    os.link(self.local / path, target)
                except FileExistsError:
                    return
                except OSError:
                    # FAT, exFAT and many network disks have no hard links; what is missing is missing for a copy, too.
                    write_durably(target, (self.local / path).read_bytes(), mode=0o644)
                else:
                    sync(target.parent)
            return
        with self._store("write", to) as (fs, name):
            if not fs.exists(name):
                fs.pipe_file(name, self.read(path))

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        with suppress(FileNotFoundError):
            if self.local:
                with self._disk("delete", path) as file:
                    file.unlink()
                return
            with self._store("delete", path) as (fs, name):
                fs.rm_file(name)

    def discard(self, paths: Iterable[str]) -> None:
        """Remove files that nobody needs any more. One that cannot be removed stays: what else was done is no less done."""
        for path in paths:
            try:
                self.remove(path)
            except StorageUnavailable as error:
                logger.warning("a file that is not needed stays: %s", error)

    def exists(self, path: str) -> bool:
        """Return whether a file exists."""
        if self.local:
            with self._disk("look for", path) as file:
                return file.exists()
        with self._store("look for", path) as (fs, name):
            return bool(fs.exists(name))

    @contextmanager
    def _disk(self, what: str, path: str) -> Generator[Path]:
        try:
            yield cast("Path", self.local) / path
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StorageUnavailable(
                f"Could not {what} {path} at {self._location}: {error}. Check the disk, and who may write to it."
            ) from error

    @contextmanager
    def _store(self, what: str, path: str) -> Generator[tuple[Any, str]]:
        try:
            yield self._opened(), f"{self._url.netloc}{self._url.path}/{path}"
        except (FileNotFoundError, StorageUnavailable):
            raise
        except ImportError as error:
            raise StorageUnsupported(f"{self._location}: {error} (for S3, install ratify-lakehouse[s3]).") from error
        except Exception as error:
            raise StorageUnavailable(
                f"Could not {what} {path} at {self._location}: {type(error).__name__}: {error}. Check the network, and "
                "the grants of the principal that the catalog vends credentials to."
            ) from error

    def _opened(self) -> Any:
        if self._fs is None or time.time() > self._renew_at:
            if self._url.scheme not in {"s3", "s3a"}:
                raise StorageUnsupported(
                    f"{self._location}: tables are written on local disks and on S3; another store needs Spark."
                )
            import fsspec  # pyright: ignore[reportMissingTypeStubs] it ships none

            vended = max(self._credentials(), key=lambda credential: len(credential["prefix"]), default=None)
            config = cast("dict[str, str | None]", (vended or {}).get("config") or {})
            ends = (vended or {}).get("expiration-time-ms")
            self._renew_at = ends / 1000 - _RENEW_BEFORE_S if ends else float("inf")
            self._fs = fsspec.filesystem(  # pyright: ignore[reportUnknownMemberType]
                "s3",
                key=config.get("s3.access-key-id"),
                secret=config.get("s3.secret-access-key"),
                token=config.get("s3.session-token"),
                skip_instance_cache=True,
            )
        return self._fs


def _stored(folder: Path, path: Path) -> StoredFile | None:
    try:
        entry = path.stat()
    except FileNotFoundError:
        # Writers remove files of their own at any time.
        return None
    return StoredFile(path.relative_to(folder).as_posix(), entry.st_size, entry.st_mtime)

"""Checkpoints of streams: a folder for each table that a stream writes, with the table's id as its last part.

So the stream into a table that was dropped and created again starts from the beginning. RATIFY_CHECKPOINTS names the store,
which must be reachable for Spark and for the process that starts the streams.
"""

import contextlib
import datetime as dt
import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.durable_files import hold, holder
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import CheckpointUnreachable, StreamBusy
from ratify_lakehouse.settings import Settings

_MARK = "_ratify"
_NAME = "%Y%m%dT%H%M%S%f"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a stream: its unique name, and its folder.

    The name is part of the `txn` app id of the stream's commits. Batch numbers start from 0 with a new checkpoint, and under
    the old app id Delta would skip them as batches that it already has.
    """

    name: str
    url: str

    @property
    def begun(self) -> dt.datetime:
        """When it was created (UTC)."""
        return dt.datetime.strptime(self.name, _NAME).replace(tzinfo=dt.UTC)


def folder(spark: Spark, declaration: TableDeclaration) -> str:
    """Return the folder of the stream into a table, as Spark knows it."""
    table = spark.catalog.table(spark.full_name(declaration))
    return f"{Settings().checkpoints}/{declaration.table_name}/{table.table_id}"


def current(spark: Spark, declaration: TableDeclaration) -> Checkpoint | None:
    """Return the newest checkpoint; None if there is none.

    Raises:
        CheckpointUnreachable: its store cannot be reached from here.
    """
    url = folder(spark, declaration)
    fs, path = _opened(url)
    names = sorted(mark.rstrip("/").split("/")[-2] for mark in fs.glob(f"{path}/*/{_MARK}"))
    return Checkpoint(names[-1], f"{url}/{names[-1]}") if names else None


def begin(spark: Spark, declaration: TableDeclaration) -> Checkpoint:
    """Create an empty checkpoint, which is then the current one.

    Raises:
        CheckpointUnreachable: its store cannot be reached from here.
    """
    name = dt.datetime.now(dt.UTC).strftime(_NAME)
    url = f"{folder(spark, declaration)}/{name}"
    fs, path = _opened(url)
    fs.makedirs(path, exist_ok=True)
    fs.touch(f"{path}/{_MARK}")
    return Checkpoint(name, url)


def has_begun(url: str) -> bool:
    """Whether a stream ever planned a batch with this checkpoint; False also if only Spark can reach it."""
    try:
        fs, path = _opened(url)
        return any(not name.rpartition("/")[2].startswith(".") for name in fs.ls(f"{path}/offsets", detail=False))
    except (FileNotFoundError, CheckpointUnreachable):
        return False


def position(url: str) -> Mapping[str, Any] | None:
    """Return up to where a stream has read its one source, as that source writes it.

    None if it has finished no batch, and also if only Spark can reach the checkpoint.
    """
    with contextlib.suppress(FileNotFoundError, CheckpointUnreachable):
        fs, path = _opened(url)
        names = (name.rpartition("/")[2] for name in fs.ls(f"{path}/commits", detail=False))
        if finished := [int(name) for name in names if name.isdigit()]:
            # The version of the format, what Spark notes of the batch, and a line for each source.
            return json.loads(fs.cat(f"{path}/offsets/{max(finished)}").decode().splitlines()[2])
    return None


def sweep(url: str) -> None:
    """Remove what a stream left that died while it planned its first batch: otherwise Spark cannot start it again.

    If a batch has begun, or only Spark can reach the checkpoint, nothing is removed.
    """
    if has_begun(url):
        return
    with contextlib.suppress(FileNotFoundError, CheckpointUnreachable):
        fs, path = _opened(url)
        for name in fs.ls(f"{path}/offsets", detail=False):
            fs.rm_file(name)


def forget(spark: Spark, declaration: TableDeclaration) -> None:
    """Delete every checkpoint of the stream into a table.

    Raises:
        CheckpointUnreachable: its store cannot be reached from here.
    """
    fs, path = _opened(folder(spark, declaration))
    with contextlib.suppress(FileNotFoundError):
        fs.rm(path, recursive=True)


@contextlib.contextmanager
def exclusive(declaration: TableDeclaration) -> Generator[None]:
    """Hold the lock on the stream into a table for this home: two streams with one checkpoint would stop each other.

    Raises:
        StreamBusy: another process runs it.
    """
    name = declaration.table_name
    lock = Settings().home / "streams" / f"{name}.lock"
    with hold(lock) as held:
        if not held:
            raise StreamBusy(
                f"The stream into {name} is already running in process {holder(lock)}. If that is the continuous mode "
                "(`ratify stream status`), wait for it."
            )
        yield


def _opened(url: str) -> tuple[Any, str]:
    import fsspec  # pyright: ignore[reportMissingTypeStubs] it ships none

    where = url if "://" in url else str(Path(url).absolute())
    try:
        return cast("tuple[Any, str]", fsspec.url_to_fs(where))  # pyright: ignore[reportUnknownMemberType]
    except (ValueError, ImportError) as error:
        raise CheckpointUnreachable(
            f"The checkpoint {url} cannot be reached from here ({error}): set RATIFY_CHECKPOINTS to a folder or a URL that "
            "Spark and this machine both reach."
        ) from error

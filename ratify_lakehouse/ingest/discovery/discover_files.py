"""Discovers landed files, by listing or by notifications, into the index that both share.

Because they share it, the mode may be switched at any time: a file that one has found, the other does not find again. A
switch starts with a listing, so that no file is missed between the two. In mode `notification` a listing is repeated from
time to time: no service guarantees that a notification arrives.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import TerminalError
from ratify_lakehouse.ingest.discovery.file_index import LAST, FileIndex, ListingProgress, Look
from ratify_lakehouse.ingest.discovery.notifications import (
    BadMessage,
    Message,
    Queue,
    created,
    keep_bad_message,
    landing_path,
)
from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from ratify_lakehouse.ingest.ledger.ledger_queries import table_entries
from ratify_lakehouse.input_settings import Discovery
from ratify_lakehouse.landing.file_listing import is_data
from ratify_lakehouse.landing.landing_zone import LandingZone, folder_of, matcher

_log = logging.getLogger(__name__)

_MESSAGES_AT_ONCE = 100


@dataclass(frozen=True)
class Area:
    """Which files are discovered: those of the sources, within prefix and glob.

    Attributes:
        patterns: Glob of each source, by its name; a file belongs to the first that matches.
    """

    patterns: Mapping[str, str]
    prefix: str = ""
    glob: str = "**"

    def __str__(self) -> str:
        return json.dumps([dict(self.patterns), self.prefix, self.glob])

    def source_of(self) -> Callable[[str], str | None]:
        """Return the function that gives the source of a path; None: it is not discovered."""
        wanted = matcher(self.glob)
        sources = [(name, matcher(pattern)) for name, pattern in self.patterns.items()]

        def source(path: str) -> str | None:
            if not (path.startswith(self.prefix) and is_data(path) and wanted(path)):
                return None
            return next((name for name, matches in sources if matches(path)), None)

        return source

    def folders(self) -> list[str]:
        """Return the folders to list, sorted, none inside of another."""
        inside = self.prefix.rpartition("/")[0] + "/" if "/" in self.prefix else ""
        heads = {folder_of(pattern) for pattern in self.patterns.values()}
        narrowed = {max(head, inside, key=len) for head in heads if head.startswith(inside) or inside.startswith(head)}
        folders = list[str]()
        for folder in sorted(narrowed):
            if not (folders and folder.startswith(folders[-1])):
                folders.append(folder)
        return folders


def discover(
    index: FileIndex,
    landing: LandingZone,
    options: Discovery,
    patterns: Mapping[str, str],
    queue: Queue | None,
    bad_messages: Path,
    started_at: float,
    seconds: float,
) -> None:
    """Look once, for at most about so many seconds; the next look resumes where this one stopped.

    Args:
        patterns: Glob of each source, by its name.
        queue: Where notifications come from; None: files are found by listing.
        bad_messages: Folder for messages that are no notifications.
        started_at: When discovery began (seconds since 1970); without `include_existing`, older files are ignored.

    Raises:
        LandingUnavailable: the landing zone cannot be listed.
        QueueUnavailable: the queue cannot be read.
        IndexLost: the index is damaged.
    """
    now, deadline = time.time(), time.monotonic() + seconds
    area = Area(patterns, options.prefix, options.glob)
    progress = index.listing
    first = not options.include_existing and progress.baseline != str(area)
    look = Look(now, options.settle_seconds, area.source_of(), existing_before=started_at if first else None)

    def late() -> bool:
        return time.monotonic() > deadline

    if queue:
        take_messages(index, queue, landing, look, bad_messages, late)
    begun = _begun(progress, f"{options.mode} {area}", now, options.relist_seconds if queue else 0)
    if begun:
        list_on(index, landing, look, area, begun, late)


def drop_settled(index: FileIndex, duckdb: DuckDB, sources: Iterable[Source]) -> bool:
    """Take the files of a new index as settled that the ledger says are: another index may have found them before.

    Returns:
        Whether the first listing is complete, so that it need not be called again.

    Raises:
        TransientError: the ledger cannot be read now.
    """
    found = [(source, files) for source in sources if (files := index.not_requested(source.table_name))]
    try:
        if found:
            duckdb.catalog.table(LANDED_FILES.full_name(duckdb.catalog.connection.name))
            with duckdb.session() as session:
                for source, files in found:
                    entries = table_entries(session, source, [file.path for file in files])
                    index.drop(entries.settled(files))
    except TerminalError as error:
        # Without a ledger nothing is settled; runs report what else is wrong better than a sensor.
        _log.info("all files count as new: %s", error)
    return bool(index.listing.baseline)


def _begun(progress: ListingProgress, scope: str, now: float, again_after: float) -> ListingProgress | None:
    """Return the listing to continue, or a new one if one is due."""
    if progress.scope == scope and progress.at is not None:
        return progress
    due = progress.scope != scope or progress.started is None or now - progress.started >= again_after
    return replace(progress, scope=scope, started=now, at="") if due else None


def list_on(
    index: FileIndex, landing: LandingZone, look: Look, area: Area, progress: ListingProgress, late: Callable[[], bool]
) -> None:
    """Continue a listing until its end or its deadline."""
    at = progress.at or ""
    for folder in area.folders():
        after, end = max(at, folder), folder + LAST
        if at >= end:
            continue
        with closing(landing.pages(folder, after)) as pages:
            for page in pages:
                last = page[-1].path
                index.observe(look, page, after, last)
                after = last
                if late():
                    index.save_listing(replace(progress, at=after))
                    return
        index.observe(look, [], after, end)
    index.save_listing(replace(progress, at=None, baseline=str(area)))


def take_messages(
    index: FileIndex, queue: Queue, landing: LandingZone, look: Look, bad_messages: Path, late: Callable[[], bool]
) -> None:
    """Index the files that the queue announces, and delete the messages whose files are settled."""
    messages = queue.receive(index.awaits)
    while some := list(islice(messages, _MESSAGES_AT_ONCE)):
        _take(index, queue, landing, look, bad_messages, some)
        if late():
            break
    for message, receipt in index.settled_messages():
        queue.delete(receipt)
        index.forget(message)


def _take(
    index: FileIndex, queue: Queue, landing: LandingZone, look: Look, bad_messages: Path, messages: list[Message]
) -> None:
    announced = dict[str, list[str]]()
    for message in messages:
        try:
            paths = [landing_path(landing.root, file) for file in created(message.text)]
        except BadMessage as error:
            keep_bad_message(bad_messages, message, str(error))
            queue.delete(message.receipt)
        else:
            announced[message.id] = [path for path in paths if path and look.source_of(path)]
    files = landing.listed({path for paths in announced.values() for path in paths})
    with index.transaction():
        for file in files:
            index.announce(look, file)
        for message in messages:
            if message.id in announced:
                index.await_files(message.id, message.receipt, announced[message.id])

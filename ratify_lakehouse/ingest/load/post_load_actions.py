"""Post-load actions: what happens to the files of a load batch once the ledger has their outcomes."""

from collections import Counter

from ratify_lakehouse.ingest.file_source import Rewrite, Source
from ratify_lakehouse.ingest.ledger.file_ledger import FileOutcome, Status
from ratify_lakehouse.ingest.load.batch_loading import BatchOutcome
from ratify_lakehouse.input_settings import Discovery
from ratify_lakehouse.landing.file_moves import Moved, archive, dead_letter, delete
from ratify_lakehouse.landing.landing_zone import LandingZone


def apply_post_load_actions(
    landing: LandingZone, options: Discovery, source: Source, outcome: BatchOutcome
) -> Counter[Moved]:
    """Archive or delete the files that are in bronze, as configured; move those that cannot be loaded to the dead letters.

    Call it after `load_batch`; repeated after a crash, it does what is left to do. Returns how many moves ended how.
    A repeated file of a source that replaces rows stays: if the file that has its rows gets other content, it is loaded.

    Raises:
        LandingUnavailable: a file cannot be moved.
    """
    needed = source.on_rewrite is Rewrite.REPLACE
    files = (file for file in outcome.files if not (needed and file.status is Status.REPEATED))
    moves = (_action(landing, options, file) for file in files)
    return Counter(moved for moved in moves if moved)


def moved_to(options: Discovery, status: Status, path: str) -> str:
    """Return where a file of this status is moved to in the landing zone; empty if it is not moved because of it."""
    return f"{options.dead_letter}/{path}" if status is Status.REFUSED and options.dead_letter else ""


def _action(landing: LandingZone, options: Discovery, file: FileOutcome) -> Moved | None:
    if file.status is Status.REFUSED:
        if not options.dead_letter:
            return None
        return dead_letter(landing, file.path, file.fingerprint, options.dead_letter, file.reason)
    if options.after_success == "archive":
        return archive(landing, file.path, file.fingerprint, options.archive)
    return delete(landing, file.path, file.fingerprint) if options.after_success == "delete" else None

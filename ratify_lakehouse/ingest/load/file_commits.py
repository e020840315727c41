"""Commits of landed files: what the ledger's rules ask for, done step by step until every file of a batch is settled."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.group_commit import Staged
from ratify_lakehouse.engines.duckdb.row_replacement import replace_rows
from ratify_lakehouse.errors import AlreadyLoaded, LoadsWithdrawn, UnsafeTable
from ratify_lakehouse.ingest.file_source import Rewrite, Source
from ratify_lakehouse.ingest.ledger.committed_files import details_of
from ratify_lakehouse.ingest.ledger.file_ledger import FileOutcome, Status
from ratify_lakehouse.ingest.ledger.file_load_ids import content_load, path_load
from ratify_lakehouse.ingest.ledger.file_states import FileStep, HeldContents, next_step
from ratify_lakehouse.ingest.ledger.ledger_access import FileLedger

logger = logging.getLogger(__name__)

_COPIED_TOGETHER = 8


@dataclass
class FileCommits:
    """Commits the parsed files of one batch.

    Attributes:
        staged: Gives the rows of files as one pending append.
        columns_changed: Whether the table has other columns by now; if so, `staged` gives the rows with these.
        settled: The files that are done, by path.
        version: Of the batch's append; None if nothing was appended.
        more_follow: Whether more batches follow soon; see `load_batch`.
    """

    session: DuckDBSession
    source: Source
    ledger: FileLedger
    staged: Callable[[Sequence[FileOutcome]], Staged]
    columns_changed: Callable[[], bool]
    settled: dict[str, FileOutcome] = field(default_factory=dict[str, FileOutcome])
    version: int | None = None
    more_follow: bool = False
    _removed: dict[str, FileOutcome] = field(default_factory=dict[str, FileOutcome])
    _first: int | None = None

    @property
    def copies_later(self) -> bool:
        """Whether entries are written for several versions together: writers on several machines would race for the ledger
        after each of their commits."""
        return self.more_follow and self.ledger.contended

    def commit(self, files: Sequence[FileOutcome]) -> None:
        """Do what the ledger's rules ask for, however many writers load the same files at the same time.

        Each step is decided by what the table held at one version, and its commit compares and sets load ids: if another
        writer has come first, the table refuses it, and the step is decided again. Appends come first, all in one commit;
        then replacements, one by one, after which a file that repeated the replaced content may be due. In the order of
        landings, all of them count as of the first.
        """
        files = [replace(file, batch_position=position) for position, file in enumerate(files)]
        while files := [file for file in files if file.path not in self.settled]:
            held = self.ledger.held([file.path for file in files], [file.sha256 for file in files])
            # An attempt that was killed may have committed some of the batch's files.
            before = (entry.version for entry in held if entry.batch_id == files[0].batch_id)
            self._first = min(before, default=None) if self._first is None else self._first
            files = [replace(file, batch_version=self._first) for file in files]
            steps = {file.path: self._step(file, held) for file in files}
            appends = {file.sha256: file for file in reversed(files) if steps[file.path] is FileStep.APPEND}
            changing = (file for file in files if steps[file.path] in (FileStep.REPLACE, FileStep.REMOVE))
            try:
                if appends:
                    self._append(list(reversed(appends.values())))
                elif file := next(changing, None):
                    self._replace(file, held, with_rows=steps[file.path] is FileStep.REPLACE)
                else:
                    self.settled |= {file.path: self._unchanged(file, steps[file.path], held) for file in files}
            except AlreadyLoaded as error:
                logger.info("%s", error)
                self.ledger.look_again(error, held)
            except LoadsWithdrawn as error:
                logger.info("%s", error)
                self.ledger.look_again_after_withdrawal(error)
            except UnsafeTable:
                # Another writer's file may have added a column meanwhile: our files have NULL in it.
                if not self.columns_changed():
                    raise

    def _step(self, file: FileOutcome, held: HeldContents) -> FileStep:
        step = next_step(self.source.on_rewrite, file.path, file.sha256, held)
        unreadable = file.status is Status.REFUSED
        return FileStep.REFUSED if unreadable and step in (FileStep.APPEND, FileStep.REPLACE) else step

    def _load_ids(self, file: FileOutcome) -> list[str]:
        # Where new content is appended, a name may have several.
        by_path = [] if self.source.on_rewrite is Rewrite.APPEND else [path_load(file.path)]
        return [content_load(file.sha256), *by_path]

    def _append(self, files: Sequence[FileOutcome]) -> None:
        began = time.monotonic()
        loads = tuple(load for file in files for load in self._load_ids(file))
        details = tuple(details_of(file) for file in files)
        staged = replace(self.staged(files), loads=loads, load_details=details)
        ratified = self.session.commit_staged(self.source.table, staged, self._copy_commits)
        seconds = time.monotonic() - began
        self.version = ratified.version
        self._committed(ratified.version)
        if ratified.completed:
            self.ledger.copied(ratified.version)
        else:
            self.ledger.refresh(ratified.version)
        for file in files:
            self.settled[file.path] = replace(
                file,
                version=ratified.version,
                attempts=ratified.attempts,
                seconds=round(file.seconds + seconds, 4),
            )

    def _committed(self, version: int) -> None:
        self._first = version if self._first is None else self._first

    def _copy_commits(self, version: int) -> None:
        """Write the entries of a version, which may have files of other writers."""
        if self.copies_later and version % _COPIED_TOGETHER:
            return
        self.ledger.refresh(version)
        self.ledger.record([])

    def _replace(self, file: FileOutcome, held: HeldContents, *, with_rows: bool) -> None:
        """Remove the rows of a file's other content, and add its present rows unless another file holds them."""
        began = time.monotonic()
        new = [file] if with_rows else []
        staged = replace(
            self.staged(new),
            loads=tuple(content_load(each.sha256) for each in new),
            load_details=tuple(details_of(each) for each in new),
        )
        old = [content_load(entry.sha256) for entry in held.others_of(file.path, file.sha256)]
        replacement = replace_rows(
            self.session.con,
            self.session.log(self.source.table),
            staged,
            "_source_file",
            file.path,
            withdrawn=[*old, *([] if with_rows else [path_load(file.path)])],
            reloaded=[path_load(file.path)] if with_rows else [],
        )
        self._committed(replacement.version)
        seconds = round(file.seconds + time.monotonic() - began, 4)
        done = replace(
            file,
            replaced=replacement.removed,
            version=replacement.version,
            attempts=replacement.attempts,
            seconds=seconds,
        )
        if with_rows:
            self.settled[file.path] = done
        else:
            self._removed[file.path] = done

    def _unchanged(self, file: FileOutcome, step: FileStep, held: HeldContents) -> FileOutcome:
        """What became of a file that adds nothing."""
        none = replace(self._removed.get(file.path, file), rows=0, rescued=0, batch_version=self._first)
        if file.status is Status.REFUSED and step is FileStep.REFUSED:
            return none
        if (holder := held.holder(file.sha256)) is None:
            content = held.of_path(file.path)[0].sha256
            reason = "this name was loaded before with other content; land a correction under a new name"
            return replace(none, status=Status.REFUSED, reason=reason, conflicts_with=content)
        if step is FileStep.KNOWN and (file.path, file.fingerprint, file.sha256) in self.ledger.uncopied:
            # Its rows are there, though it could not be read by the present declaration.
            loaded = replace(file, status=Status.LOADED, reason="", recovered=True)
            return replace(loaded, rows=holder.rows, batch_id=holder.batch_id)
        same = step is FileStep.KNOWN
        reason = "its bytes were loaded before" if same else f"the same bytes as {holder.path}"
        return replace(none, status=Status.REPEATED, reason=reason, repeated_of=holder.path, held_since=holder.version)


def not_loaded(files: Sequence[FileOutcome]) -> list[FileOutcome]:
    """Return the files whose entries come from no commit."""
    return [file for file in files if file.status in (Status.REPEATED, Status.REFUSED)]

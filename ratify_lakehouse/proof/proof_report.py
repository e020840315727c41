"""The report of the cross-engine proof: how each step ended, and every commit of every table by the engine that made it.

It is written twice: as Markdown, and as one HTML file that loads nothing and has the timeline of commits.
"""

import datetime as dt
import html
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.proof.proof_timeline import colour, timeline

Result = tuple[str, str, str]
"""Name, status and detail of a step or check."""

PASSED, FAILED, UNAVAILABLE = "passed", "failed", "unavailable"
"""Statuses. Any other word, too, counts as something that was not shown."""

_MARKS = {PASSED: "✓", FAILED: "✗"}
_NOT_SHOWN = "⚠"
_RESULT_COLUMNS = ("Name", "Status", "Detail")
_ENGINE_COLUMNS = ("Engine", "Commits", "Rows added", "Tables", "Engine info")
_COMMIT_COLUMNS = ("Version", "Time (UTC)", "Engine", "Operation", "Rows added", "Engine info")
_NUMBERS = frozenset({"Commits", "Rows added", "Version"})


def write_report(folder: Path, commits: Mapping[str, Sequence[Commit]], results: Sequence[Result]) -> tuple[Path, Path]:
    """Write `report.md` and `report.html` to a folder, which is created if it is missing, and return their paths.

    Args:
        folder: Where to.
        commits: Of each table by its name, in any order.
        results: What was to be shown: name, status and detail of each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    markdown, page = folder / "report.md", folder / "report.html"
    markdown.write_text(_markdown(commits, results), encoding="utf-8")
    page.write_text(_html(commits, results), encoding="utf-8")
    return markdown, page


def verdict(results: Sequence[Result]) -> str:
    """Return the status of the whole: passed only where there are results and each of them is."""
    statuses = {status for _, status, _ in results}
    if FAILED in statuses:
        return FAILED
    return PASSED if statuses == {PASSED} else "incomplete"


def _summary(results: Sequence[Result]) -> str:
    counts = Counter(status for _, status, _ in results)
    return ", ".join(f"{count} {status}" for status, count in counts.items()) or "nothing was run"


def _title(results: Sequence[Result]) -> str:
    return f"Cross-engine proof: {_mark(verdict(results))}"


def _mark(status: str) -> str:
    return f"{_MARKS.get(status, _NOT_SHOWN)} {status}"


def _result_rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    return [(name, _mark(status), detail) for name, status, detail in results]


def _engine_rows(commits: Mapping[str, Sequence[Commit]]) -> list[tuple[str, ...]]:
    """A row for each engine that committed: commits, rows that it reports as added, tables, and its engine info."""
    rows = list[tuple[str, ...]]()
    for engine in Engine:
        found = [(table, commit) for table, of_table in commits.items() for commit in of_table if commit.engine is engine]
        if found:
            added = sum(commit.rows_added or 0 for _, commit in found)
            tables, infos = sorted({table for table, _ in found}), sorted({commit.engine_info for _, commit in found})
            rows.append((engine.value, f"{len(found):,}", f"{added:,}", ", ".join(tables), ", ".join(infos)))
    return rows


def _commit_rows(commits: Iterable[Commit]) -> list[tuple[str, ...]]:
    return [
        (
            str(commit.version),
            f"{commit.timestamp.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S}",
            commit.engine.value,
            commit.operation,
            "" if commit.rows_added is None else f"{commit.rows_added:,}",
            commit.engine_info,
        )
        for commit in sorted(commits, key=lambda commit: commit.version)
    ]


def _markdown(commits: Mapping[str, Sequence[Commit]], results: Sequence[Result]) -> str:
    parts = [
        f"# {_title(results)}",
        f"{_literal_markdown(_summary(results))}.",
        "## Results",
        _markdown_table(_RESULT_COLUMNS, _result_rows(results)),
        "## Commits by engine",
        _markdown_table(_ENGINE_COLUMNS, _engine_rows(commits)),
    ]
    for table, of_table in commits.items():
        parts += [f"## {_literal_markdown(table)}", _markdown_table(_COMMIT_COLUMNS, _commit_rows(of_table))]
    return "\n\n".join(parts) + "\n"


def _markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [
        columns,
        ["---:" if name in _NUMBERS else "---" for name in columns],
        *([_literal_markdown(cell) for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _literal_markdown(text: str) -> str:
    """Text as Markdown shows it literally, on one line."""
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"([\\`*\[\]|~#]|(?<!\w)_|_(?!\w))", r"\\\1", escaped)
    return "<br>".join(escaped.splitlines())


def _html(commits: Mapping[str, Sequence[Commit]], results: Sequence[Result]) -> str:
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined)
    engines = {commit.engine for of_table in commits.values() for commit in of_table}
    return environment.get_template("proof_report.html.j2").render(
        title=_title(results),
        **{"class": _class(verdict(results))},
        summary=_summary(results),
        numbers=_NUMBERS,
        result_columns=_RESULT_COLUMNS,
        results=_result_rows(results),
        result_classes=[_class(status) for _, status, _ in results],
        legend=[(engine.value, colour(engine)) for engine in Engine if engine in engines],
        timeline=timeline(commits),
        engine_columns=_ENGINE_COLUMNS,
        engines=_engine_rows(commits),
        commit_columns=_COMMIT_COLUMNS,
        tables=[(table, _commit_rows(of_table)) for table, of_table in commits.items()],
    )


def _class(status: str) -> str:
    return status if status in _MARKS else "open"

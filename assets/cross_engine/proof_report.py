"""The report of the cross-engine proof: what each step came to, and every commit of every table by the engine that made it.

It is written twice: as Markdown, and as one HTML file that needs nothing beside it and carries the timeline of commits.
"""

import datetime as dt
import html
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from resources.declarations import Engine
from resources.delta.commit_history import Commit

Result = tuple[str, str, str]
"""Name, status and detail of a step or check."""

PASSED, FAILED, UNAVAILABLE = "passed", "failed", "unavailable"
"""Statuses. Any other word, too, counts as something that was not shown."""

_MARKS = {PASSED: "✓", FAILED: "✗"}
_NOT_SHOWN = "⚠"
# Told apart by the colour-blind too, on light and on dark (Okabe and Ito, "Color Universal Design").
_COLOURS = ("#d55e00", "#0072b2", "#cc79a7", "#009e73", "#7f7f7f", "#e69f00")
# In the units of the drawing, of which a letter of the labels takes about seven.
_WIDTH, _RIGHT, _LANE, _TOP, _AXIS, _LETTER, _TICKS = 900, 40, 34, 12, 34, 7, 5
_CSS = """
:root { color-scheme: light dark; --ink: #1c1c1e; --paper: #fff; --faint: #d8d8dc; --good: #116b2e; --bad: #b00020;
  --open: #8a5a00 }
@media (prefers-color-scheme: dark) { :root { --ink: #ececf0; --paper: #18181b; --faint: #3f3f46; --good: #6fd08c;
  --bad: #ff8a94; --open: #f0b849 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1080px;
  margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: .5rem 0 1.5rem } th, td { text-align: left; padding: .25rem .75rem .25rem 0;
  border-bottom: 1px solid var(--faint); vertical-align: top; overflow-wrap: break-word }
.number { text-align: right; font-variant-numeric: tabular-nums }
.passed { color: var(--good) } .failed { color: var(--bad) } .open { color: var(--open) }
svg { width: 100%; height: auto } svg text { fill: var(--ink); font-size: 12px }
svg line { stroke: var(--faint) } svg circle { stroke: var(--paper); stroke-width: 1 }
.legend span { margin-right: 1.25rem } .legend i { display: inline-block; width: .75rem; height: .75rem; border-radius: 50%;
  margin-right: .35rem }
"""


def write_report(folder: Path, commits: Mapping[str, Sequence[Commit]], results: Sequence[Result]) -> tuple[Path, Path]:
    """Write `report.md` and `report.html` to a folder, which is made if it is missing, and return their paths.

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


def _mark(status: str) -> str:
    return f"{_MARKS.get(status, _NOT_SHOWN)} {status}"


def _by_engine(commits: Mapping[str, Sequence[Commit]]) -> list[tuple[str, ...]]:
    """A row for each engine that committed: commits, rows that it says it added, tables, and how it calls itself."""
    rows = list[tuple[str, ...]]()
    for engine in Engine:
        made = [(table, commit) for table, all_ in commits.items() for commit in all_ if commit.engine is engine]
        if made:
            added = sum(commit.rows_added or 0 for _, commit in made)
            tables, infos = sorted({table for table, _ in made}), sorted({commit.engine_info for _, commit in made})
            rows.append((engine.value, f"{len(made):,}", f"{added:,}", ", ".join(tables), ", ".join(infos)))
    return rows


_ENGINE_HEAD = ("Engine", "Commits", "Rows added", "Tables", "Engine info")
_COMMIT_HEAD = ("Version", "Time (UTC)", "Engine", "Operation", "Rows added", "Engine info")
_NUMBERS = frozenset({"Commits", "Rows added", "Version"})


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
    shown = [(name, _mark(status), detail) for name, status, detail in results]
    parts = [
        f"# Cross-engine proof: {_mark(verdict(results))}",
        f"{_text(_summary(results))}.",
        "## Results",
        _markdown_table(("Name", "Status", "Detail"), shown),
        "## Commits by engine",
        _markdown_table(_ENGINE_HEAD, _by_engine(commits)),
    ]
    for table, made in commits.items():
        parts += [f"## {_text(table)}", _markdown_table(_COMMIT_HEAD, _commit_rows(made))]
    return "\n\n".join(parts) + "\n"


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    entries = [
        head,
        ["---:" if name in _NUMBERS else "---" for name in head],
        *([_text(cell) for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(entry)} |" for entry in entries)


def _text(said: str) -> str:
    """Text as Markdown shows it literally, on one line."""
    literal = html.escape(said, quote=False)
    literal = re.sub(r"([\\`*\[\]|~#]|(?<!\w)_|_(?!\w))", r"\\\1", literal)
    return "<br>".join(literal.splitlines())


def _html(commits: Mapping[str, Sequence[Commit]], results: Sequence[Result]) -> str:
    title = f"Cross-engine proof: {_mark(verdict(results))}"
    shown = [(name, _mark(status), detail) for name, status, detail in results]
    tables = "\n".join(
        f"<details><summary>{html.escape(table)} ({len(made):,})</summary>"
        f"{_html_table(_COMMIT_HEAD, _commit_rows(made))}</details>"
        for table, made in commits.items()
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title><style>{_CSS}</style></head><body>
<h1 class="{_class(verdict(results))}">{html.escape(title)}</h1>
<p>{html.escape(_summary(results))}.</p>
<h2>Results</h2>
{_html_table(("Name", "Status", "Detail"), shown, [_class(status) for _, status, _ in results])}
<h2>Commits over time</h2>
{_legend(commits)}
{_timeline(commits)}
<h2>Commits by engine</h2>
{_html_table(_ENGINE_HEAD, _by_engine(commits))}
<h2>Commits by table</h2>
{tables}
</body></html>
"""


def _class(status: str) -> str:
    return status if status in _MARKS else "open"


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]], classes: Sequence[str] = ()) -> str:
    """A table; `classes` are those of the cells of the column "Status"."""

    def cell(tag: str, column: str, said: str, more: str = "") -> str:
        names = " ".join(filter(None, ["number" if column in _NUMBERS else "", more if column == "Status" else ""]))
        return f"<{tag}{f' class={chr(34)}{names}{chr(34)}' if names else ''}>{html.escape(said)}</{tag}>"

    entries = ["".join(cell("th", name, name) for name in head)]
    for number, row in enumerate(rows):
        more = classes[number] if classes else ""
        entries.append("".join(cell("td", name, said, more) for name, said in zip(head, row, strict=True)))
    return "<table>" + "".join(f"<tr>{entry}</tr>" for entry in entries) + "</table>"


def _colour(engine: Engine) -> str:
    return _COLOURS[list(Engine).index(engine) % len(_COLOURS)]


def _legend(commits: Mapping[str, Sequence[Commit]]) -> str:
    there = {commit.engine for made in commits.values() for commit in made}
    spans = (
        f'<span><i style="background:{_colour(engine)}"></i>{html.escape(engine.value)}</span>'
        for engine in Engine
        if engine in there
    )
    return f'<p class="legend">{"".join(spans)}</p>'


def _timeline(commits: Mapping[str, Sequence[Commit]]) -> str:
    """A lane for each table, and on it a dot for each commit at its time."""
    times = [commit.timestamp for made in commits.values() for commit in made]
    if not times:
        return "<p>There are no commits.</p>"
    first, last = min(times), max(times)
    span = (last - first).total_seconds() or 1.0
    bottom, left = _TOP + _LANE * len(commits), 30 + _LETTER * max(map(len, commits))

    def x(at: dt.datetime) -> float:
        return left + (_WIDTH - left - _RIGHT) * (at - first).total_seconds() / span

    drawn = list[str]()
    for tick in range(_TICKS if last > first else 1):
        at = first + (last - first) * tick / max(1, _TICKS - 1)
        label = f"{at.astimezone(dt.UTC):{'%H:%M:%S' if span < 86_400 else '%m-%d %H:%M'}}"
        drawn.append(f'<line x1="{x(at):.1f}" y1="{_TOP}" x2="{x(at):.1f}" y2="{bottom}"/>')
        drawn.append(f'<text x="{x(at):.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
    for lane, (table, made) in enumerate(commits.items()):
        y = _TOP + _LANE * (lane + 0.5)
        drawn.append(f'<line x1="{left}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}"/>')
        drawn.append(f'<text x="{left - 14}" y="{y + 4}" text-anchor="end">{html.escape(table)}</text>')
        for commit in sorted(made, key=lambda commit: commit.version):
            said = (
                f"{table} version {commit.version}: {commit.operation} by {commit.engine_info}, {commit.timestamp:%H:%M:%S}"
            )
            drawn.append(
                f'<circle cx="{x(commit.timestamp):.1f}" cy="{y}" r="6" fill="{_colour(commit.engine)}">'
                f"<title>{html.escape(said)}</title></circle>"
            )
    label = "Commits to tables over time, coloured by engine; times in UTC"
    return f'<svg viewBox="0 0 {_WIDTH} {bottom + _AXIS}" role="img" aria-label="{label}">{"".join(drawn)}</svg>'

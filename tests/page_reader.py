"""A page of the documents as somebody follows it, block by block.

A block of `sh` has commands; one of `text` is what the command before it prints. Any other block is the file that its first
line names in a comment, or else the last path in the text above it. YAML without a `type` is a part of a file that is there.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"(?:#|--) (\S+/\S+\.\w+)\n")
_IN_TEXT = re.compile(r"`([\w./-]+\.\w+)`")
_COMMENT = re.compile(r"\s+# .*$", re.MULTILINE)
# Values that differ from run to run, and the lines that Rich draws around a table.
_MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "<time>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}"), "<id>"),
    (re.compile(r"\b\d+\.\d{1,3}( s\b|(?=\s*│))"), "<seconds>"),
    (re.compile(r"[┏┓┗┛┡┩└┘━─┳╇┴┃│┼]+"), " "),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True)
class FencedBlock:
    """A fenced block.

    Attributes:
        kind: The word behind the fence; empty without one.
        text: Its lines, without the indentation of a list.
        above: The page's text since the block before.
    """

    kind: str
    text: str
    above: str

    @property
    def file(self) -> str | None:
        """The file that it is, or a part of; None of commands, and of what they print."""
        if self.kind in ("", "sh", "text"):
            return None
        if named := _NAMED.match(self.text):
            return named[1]
        return (_IN_TEXT.findall(self.above) or [None])[-1]

    @property
    def commands(self) -> list[str]:
        """Of a block of commands: each line of a shell, without its comment."""
        if self.kind != "sh":
            return []
        lines = _COMMENT.sub("", self.text.replace("\\\n", " ")).splitlines()
        return [command for line in lines if line.strip() for command in line.strip().split(" && ")]


def blocks(page: str) -> list[FencedBlock]:
    """Return the blocks of a page, which is given by its path."""
    text, found, at = (ROOT / page).read_text(encoding="utf-8"), list[FencedBlock](), 0
    for match in _FENCED.finditer(text):
        found.append(FencedBlock(match[2], textwrap.dedent(match[3]), text[at : match.start()]))
        at = match.end()
    return found


def merged(file: str, part: str) -> str:
    """Return the YAML of a file with a part of it: of lists, an element replaces the one of its name."""
    return yaml.safe_dump(_merged(yaml.safe_load(file), yaml.safe_load(part)), sort_keys=False, allow_unicode=True)


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}
    if isinstance(old, list) and isinstance(new, list) and all(isinstance(each, Mapping) for each in (*old, *new)):
        return list(({each["name"]: each for each in old} | {each["name"]: each for each in new}).values())
    return new


def masked(printed: str) -> str:
    """Return what was printed as one line, without what differs from run to run."""
    for pattern, by in _MASKS:
        printed = pattern.sub(by, printed)
    return printed.strip()


def assert_printed(block: FencedBlock, printed: str) -> None:
    """Each line of the block is in what was printed, in their order; a line of `…` stands for any others."""
    found, at = masked(printed), 0
    for line in filter(None, map(masked, block.text.splitlines())):
        if line == "…":
            continue
        assert line in found[at:], f"{line}\nis not in\n{printed}"
        at = found.index(line, at) + len(line)


def following(page: str) -> Iterator[FencedBlock]:
    """Give the blocks of a page to a reader: each has to be one that the reader knows what to do with."""
    for block in blocks(page):
        assert block.kind in ("sh", "text") or block.file, f"{page}: what is this block for?\n{block.text}"
        yield block

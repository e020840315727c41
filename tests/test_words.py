"""One thing has one name: the words that docs/glossary.md replaced are nowhere in the tree.

The words are regular expressions in which one letter is a class of its own, so that this file does not match itself.
"""

import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.tracked_files import ROOT, tracked

PACKAGES = ("ratify_lakehouse", "orchestration", "assets", "resources")
TEXTS = {".py", ".sql", ".md", ".scala", ".yaml", ".yml", ".toml", ".xml", ".html", ".j2", ".sh", ".example", ""}
# Written by others.
NOT_OURS = ("LICENSE", "tests/embedded/catalog/spec/")

# Everywhere, in prose and as parts of identifiers: what to write instead.
WORDS = {
    r"boo[k](s|ed|ing)?": "ledger",
    r"judg[e](s|d|ment)?|judgmen[t]|judgin[g]": "validate, validation result",
    r"conserv[e](s|d)?|conservatio[n]": "reconcile, reconciliation",
    r"hand(s|ed|ing)? ove[r]|handove[r]s?": "commit request; pass, deliver",
    r"give wa[y]|g(ives|iving|iven|ave) wa[y]": "yield window; yield",
    r"nothing taken bac[k]": "append-only respected",
    r"foreig[n] versions?": "external commit",
    r"ane[w]": "again; rebuild, full refresh",
    r"men[d](s|ed|ing)?": "fix, repair",
    r"at faul[t]": "fail, refuse, reject",
    r"put(s|ting)? awa[y]|disposa[l]s?": "post-load action",
    r"vouc[h](es|ed|ing)?": "report",
    r"incomin[g]": "pending append",
    r"exten[t]s?": "offset range",
    r"tol[d]": "reported, given",
}
# As parts of identifiers in our packages; in prose they are ordinary English.
IDENTIFIERS = {
    r"sai[d]|tel[l]s?": "message, output, reported",
    r"new[s]": "source status",
    r"cours[e]": "stream options",
    r"reache[d]": "source progress",
    r"standin[g]": "effective privileges",
    r"apar[t]": "isolated session",
    r"alon[e]": "exclusive",
    r"emptie[d]": "truncate",
    r"kep[t]": "cached, retained",
    r"od[d]|eve[n]": "loaded, withdrawn",
    r"tur[n]s?": "yield window",
    r"becaus[e]": "decided_by, reason",
}


# Names of others that we call.
THEIRS = {"tel" + "l": "the position in a file"}


def parts(text: str) -> str:
    """Return a text in which snake_case and camelCase are words apart."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ")


def found(text: str, words: Mapping[str, str]) -> Iterator[str]:
    text = parts(text)
    # Most texts have none of the words: one search says so.
    if not any_of(tuple(words)).search(text):
        return
    for pattern, better in words.items():
        for match in re.finditer(rf"\b({pattern})\b", text, re.IGNORECASE):
            yield f"{match.group()!r}, better: {better}"


@cache
def any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(patterns)})\b", re.IGNORECASE)


@cache
def found_in_identifier(name: str) -> tuple[str, ...]:
    return tuple(found(name, IDENTIFIERS))


def texts() -> list[Path]:
    ours = [path for path in tracked() if not path.relative_to(ROOT).as_posix().startswith(NOT_OURS)]
    return [path for path in ours if path.suffix in TEXTS]


def identifiers(path: Path) -> Iterator[tuple[int, str]]:
    """The identifiers of a Python or SQL file, with their lines."""
    source = path.read_text()
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.NAME:
                yield token.start[0], token.string
    else:
        for number, line in enumerate(source.splitlines(), 1):
            yield from ((number, name) for name in re.findall(r"\w+", line.partition("--")[0]))


def test_no_replaced_word_is_in_the_tree() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in texts()
        if any_of(tuple(WORDS)).search(parts(text := path.read_text()))
        for number, line in enumerate(text.splitlines(), 1)
        for word in found(line, WORDS)
    ]
    assert wrong == []


def test_no_replaced_word_is_part_of_an_identifier() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {name}: {word}"
        for package in PACKAGES
        for suffix in ("py", "sql")
        for path in (ROOT / package).rglob(f"*.{suffix}")
        for number, name in identifiers(path)
        if name not in THEIRS
        for word in found_in_identifier(name)
    ]
    assert wrong == []


@pytest.mark.parametrize("pattern", [*WORDS, *IDENTIFIERS])
def test_each_pattern_finds_its_word_in_prose_and_in_identifiers(pattern: str) -> None:
    (word,) = re.findall(r"^[\w\[\] ]+", re.sub(r"\([^)]*\)\??|(?<=\w)s\?", "", pattern))
    plain = word.replace("[", "").replace("]", "")
    for text in (
        f"a {plain} b",
        f"{plain.title()},",
        plain.replace(" ", "_"),
        f"an_{plain}_of",
        f"An{plain.capitalize()}Of",
    ):
        assert list(found(text, {pattern: ""})) != [], text
    assert list(found(f"x{plain}x", {pattern: ""})) == []

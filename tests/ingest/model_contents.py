"""The files that the model of the ledger lands: their names and contents."""

import hashlib

PATHS = ("a.csv", "b.csv", "c.csv")
# Content by name: its delimiter, and its rows. One has none.
CONTENTS = {
    "one": (",", 1),
    "two": (",", 2),
    "none": (",", 0),
    "semicolons": (";", 1),
}


def text_of(content: str) -> str:
    delimiter, rows = CONTENTS[content]
    lines = [delimiter.join(("code", "name")), *(delimiter.join((content, str(n))) for n in range(rows))]
    return "".join(f"{line}\n" for line in lines)


def digest(content: str) -> str:
    return hashlib.sha256(text_of(content).encode()).hexdigest()

"""Errors of the engines that are not known better, as one line: without stacks, plans and the statement."""

import re

_ENGINES = {"pyspark": "Spark", "delta": "Spark", "grpc": "Spark", "duckdb": "DuckDB", "_duckdb": "DuckDB"}
# The rest, after the sentence: the server's stack, the statement with a mark in it, and the plan with its branches.
_REST = re.compile(r"JVM stacktrace|\n\s*== SQL|\n\s*LINE \d+:|\n\s+at [\w.$/]+\(|\n[^\n]*\n[\s:]*\+- ")
_LONGEST = 1000


def engine_of(error: BaseException) -> str:
    """Return the engine whose library an error comes from; empty for any other."""
    roots = (kind.__module__.partition(".")[0] for kind in type(error).__mro__)
    return next((_ENGINES[root] for root in roots if root in _ENGINES), "")


def engine_sentence(error: BaseException, then: str = "run the command again") -> str:
    """Return in one line what an engine says is wrong, and what to do; `then`: once it is corrected."""
    message = " ".join(_REST.split(str(error), maxsplit=1)[0].split()) or type(error).__name__
    message = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"
    return f"{message.rstrip(' .;')}. Correct what this names, and {then}."

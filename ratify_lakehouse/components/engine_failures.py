"""Steps that fail by an engine's error: one line says what is wrong, where, and what to do.

Dagster shows the text of an error, and of those that it comes from. That of Spark has the stack of its server, hundreds of
lines, and a plan; it goes to the log of the step, at the level DEBUG, also where it was translated into an error of ours.
"""

import inspect
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import dagster as dg

from ratify_lakehouse.engine_errors import engine_of, engine_sentence
from ratify_lakehouse.errors import QueryFailed

C = TypeVar("C", bound=Callable[..., Any])

_VALUE = re.compile(r"'(?:[^'\n]|'')*'")
_THEN = "run it again; the log of the step has the engine's own text, at the level DEBUG"


def in_one_line(where: str, hides: Callable[[], bool] = lambda: False) -> Callable[[C], C]:
    """Let the function of an asset or a check fail by one line where an engine's error comes out of it.

    Args:
        where: What is computed or checked, such as silver.orders.
        hides: Whether what it reads has personal data: then the line and the log are without the values that they quote.
    """

    def decorate(compute: C) -> C:
        @wraps(compute)
        def step(*args: Any, **kwargs: Any) -> Any:
            with _translating(where, hides):
                return compute(*args, **kwargs)

        @wraps(compute)
        def steps(*args: Any, **kwargs: Any) -> Any:
            with _translating(where, hides):
                yield from compute(*args, **kwargs)

        made: Any = steps if inspect.isgeneratorfunction(compute) else step
        return made

    return decorate


def without_values(text: str) -> str:
    """Return the text of an engine's error without the values that it quotes."""
    return _VALUE.sub("'…'", text)


@contextmanager
def _translating(where: str, hides: Callable[[], bool]) -> Generator[None]:
    try:
        yield
    except Exception as error:
        if not (engine := engine_of(error)):
            _log_and_leave_out(error, hides)
            raise
        text, sentence = str(error), engine_sentence(error, _THEN)
        if hides():
            text, sentence = map(without_values, (text, sentence))
        dg.get_dagster_logger().debug(text)
        # Without its cause, whose text Dagster would show.
        raise QueryFailed(f"{where}: {engine}: {sentence}") from None


def _log_and_leave_out(error: BaseException, hides: Callable[[], bool]) -> None:
    """Log the engine's error that one of ours comes from, and take it from there: ours says already what is wrong."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is None:
        return
    if not engine_of(cause):
        _log_and_leave_out(cause, hides)
        return
    dg.get_dagster_logger().debug(without_values(str(cause)) if hides() else str(cause))
    error.__cause__, error.__suppress_context__ = None, True

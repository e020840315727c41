"""Words for the time that a query may have without a call: in a text that becomes a date, or in place of a column."""

import re
from typing import Any

_WORD = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s+\S+)?\s*", re.IGNORECASE)
# Parts of names of functions whose arguments are dates or times.
_OF_TIMES = re.compile(r"date|time|day|month|year|quarter|week|hour|minute|second|trunc|tsords", re.IGNORECASE)


def is_of_the_time(node: Any) -> bool:
    """Return whether a part of a query is a word for the time.

    A text is one in place of a date or a time: in a cast, in a call of a function of dates, and beside `<` or BETWEEN.
    Beside `=` and in IN it may as well be a text that a column has.
    """
    from sqlglot import exp

    if isinstance(node, exp.Column):
        return not node.table and node.name.lower() == "localtimestamp"
    if not (isinstance(node, exp.Literal) and node.is_string and _WORD.fullmatch(node.name)):
        return False
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    if isinstance(parent, exp.Cast):
        return parent.to.this in exp.DataType.TEMPORAL_TYPES
    if isinstance(parent, exp.Func):
        return _OF_TIMES.search(parent.name if isinstance(parent, exp.Anonymous) else type(parent).__name__) is not None
    return isinstance(parent, exp.GT | exp.GTE | exp.LT | exp.LTE | exp.Between)

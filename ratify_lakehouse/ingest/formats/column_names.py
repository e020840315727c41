"""The column that a file's field fills, where the declaration does not name it."""

import re
import unicodedata

from ratify_lakehouse.declarations import IDENTIFIER

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_PLAIN = re.compile(r"[^0-9A-Za-z]+")


def snake_case(name: str) -> str:
    """Return a field's name as a plain identifier in lower case, such as `order_id` for `Order ID` and for `orderId`.

    Accents are dropped. The result is empty where nothing of the name is a Latin letter or a digit.
    """
    if IDENTIFIER.fullmatch(name) and name == name.lower():
        return name
    latin = unicodedata.normalize("NFKD", name.strip().replace("ß", "ss")).encode("ascii", "ignore").decode()
    text = _NOT_PLAIN.sub("_", _CAMEL.sub("_", latin)).strip("_").lower()
    private = text and (latin.startswith("_") or text[0].isdigit())
    return f"_{text}" if private else text

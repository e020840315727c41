"""Texts of numbers, in Spark's and DuckDB's SQL alike: which texts a number gives back as the same value.

'02134' and '+4919' are none (postal codes, telephone numbers): a number does not give back their zeros and signs.
"""

WHOLE = "-?(0|[1-9][0-9]*)"
"""Regular expression of a whole number."""

PLAIN_NUMBER = r"-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)"
"""Regular expression of a number without an exponent."""

NUMBER = rf"{PLAIN_NUMBER}([eE][+-]?[0-9]+)?"
"""Regular expression of a number."""

NOT_FINITE = "(?i)nan|[+-]?inf(inity)?"
"""Regular expression of a floating-point number that is none or endless."""

SAFE_DIGITS = {"FLOAT": 6, "DOUBLE": 15}
"""Digits, by DuckDB's name of a floating-point type, up to which every number within its range comes back as it was."""


def digits_of(text: str, every: str = "") -> str:
    """Return SQL of the digits of a number, without its sign, exponent, and zeros at both ends.

    Args:
        text: SQL of the number's text.
        every: What follows in an engine's call of `regexp_replace` to replace all matches.
    """
    return f"trim(BOTH '0' FROM regexp_replace({text}, '[eE].*|[^0-9]', ''{every}))"

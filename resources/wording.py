"""Numbers in messages."""


def counted(number: int, what: str) -> str:
    """Return a number with what it counts, such as `1 row` or `1,200 rows`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"

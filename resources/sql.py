"""SQL text for DuckDB."""


def literal(text: str) -> str:
    """Return a string literal."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'

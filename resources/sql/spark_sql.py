"""SQL text for Spark."""


def literal(text: str) -> str:
    """Return a string literal, in which backslashes are escaped."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def identifier(name: str) -> str:
    """Return a quoted identifier."""
    return "`" + name.replace("`", "``") + "`"

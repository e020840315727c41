"""Secrets removed from the output of other programs."""

from collections.abc import Sequence

from ratify_lakehouse.sql.duckdb_sql import literal


def redacted(text: str, secrets: Sequence[str]) -> str:
    """Return a text without the secrets: programs repeat them with the statements that contain them."""
    for secret in filter(None, secrets):
        # As it is, and as it stands in a statement, where quotes are doubled.
        for form in {secret, literal(secret)[1:-1]}:
            text = text.replace(form, "***")
    return text

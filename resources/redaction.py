"""Secrets, taken out of what other programs print."""

from collections.abc import Sequence


def redacted(text: str, secrets: Sequence[str]) -> str:
    """Return a text without the secrets, which programs repeat with the statements that hold them."""
    for secret in filter(None, secrets):
        # In a statement quotes are doubled.
        for form in {secret, secret.replace("'", "''")}:
            text = text.replace(form, "***")
    return text

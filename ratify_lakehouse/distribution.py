"""The installed distribution that these packages belong to."""

from functools import cache

DISTRIBUTION = "ratify-lakehouse"
"""Its name on PyPI, where `ratify` is another project's."""


@cache
def distribution_version() -> str:
    """Return the installed version, from the distribution's metadata."""
    from importlib.metadata import version

    return version(DISTRIBUTION)

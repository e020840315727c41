"""The engines of the session's stack."""

from tests.resources.lakehouse import engines, lake

__all__ = ["engines", "lake"]

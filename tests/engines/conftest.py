"""The engines of the session's stack."""

from tests.engines.lakehouse import engines, lake

__all__ = ["engines", "lake"]

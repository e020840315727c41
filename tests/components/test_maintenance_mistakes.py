"""Mistakes in the attribute `maintenance` of a table: each error names the file, the line and the field."""

import pytest

from tests.components.test_declaration_mistakes import BRONZE, Mistakes, mistakes

__all__ = ["mistakes"]


@pytest.mark.parametrize(
    ("more", "place", "reason"),
    [
        ("  maintenance: {small_files: 1}\n", "line 5, maintenance.small_files", "it is 1; the minimum is 2"),
        (
            "  maintenance:\n    small_files: 9\n    small_ratio: 20\n",
            "line 7, maintenance.small_ratio",
            "above 0, and at most 1",
        ),
        ("  maintenance: {deleted_rows: 0}\n", "line 5, maintenance.deleted_rows", "the minimum is 1"),
        ("  maintenance: {deleted_ratio: 5}\n", "line 5, maintenance.deleted_ratio", "above 0, and at most 1"),
        ("  maintenance: {target_mb: 0}\n", "line 5, maintenance.target_mb", "the minimum is 1"),
        ("  maintenance:\n    enabled: true\n    log_versions: 0\n", "line 7, maintenance.log_versions", "the minimum is 1"),
        ("  maintenance: {small_filse: 9}\n", "defs.yaml:5", "small_filse"),
        ("  maintenance: false\n", "defs.yaml:5", "attributes.maintenance"),
        (
            "  columns: [{name: a}]\n  maintenance: {sort: [a, b]}\n",
            "line 6, maintenance.sort[1]",
            "'b' is not a column of the table, which",
        ),
        ("  maintenance:\n    sort: [a, A]\n", "line 6, maintenance.sort[1]", "'A' is there twice"),
        (
            "  maintenance:\n    sort: [a]\n    z_order: true\n",
            "line 7, maintenance.z_order",
            "name at least two columns in `sort`",
        ),
    ],
)
def test_in_its_maintenance(mistakes: Mistakes, more: str, place: str, reason: str) -> None:
    mistakes.write("bronze/orders", BRONZE + more)
    error = mistakes.error()
    assert "bronze/orders/defs.yaml" in error
    assert place in error
    assert reason in error

"""What a demo says of its checks: those that data which is wrong on purpose makes fail are apart from the others."""

import dagster as dg
import pytest

from ratify_lakehouse.cli.demo_session import Demo, show_checks


def evaluation(name: str, *, passed: bool) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(["ratify", "silver", "orders"]), check_name=name, passed=passed, metadata={}
    )


def test_checks_that_fail_by_design_are_named_and_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"good": True, "wrong_on_purpose": False, "wrong": False, "expected_but_passed": True}
    with dg.DagsterInstance.ephemeral() as instance:
        demo = Demo(instance)
        demo.checks = {("silver.orders", name): evaluation(name, passed=passed) for name, passed in found.items()}
        show_checks(demo, {("silver.orders", "wrong_on_purpose"), ("silver.orders", "expected_but_passed")})
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "silver.orders" in line]
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["silver.orders", "2 of 3", "wrong_on_purpose", ""]

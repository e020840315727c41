"""What commands say of checks: those that data which is wrong on purpose makes fail are apart from the others."""

import dagster as dg
import pytest

from ratify_lakehouse.cli.recorded_runs import RecordedRuns, faults_of, report, show_checks, warnings_of


def evaluation(name: str, *, passed: bool) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(["ratify", "silver", "orders"]), check_name=name, passed=passed, metadata={}
    )


def test_checks_that_fail_by_design_are_named_and_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"good": True, "wrong_on_purpose": False, "wrong": False, "expected_but_passed": True}
    with dg.DagsterInstance.ephemeral() as instance:
        runs = RecordedRuns(instance)
        runs.checks = {("silver.orders", name): evaluation(name, passed=passed) for name, passed in found.items()}
        show_checks(runs, {("silver.orders", "wrong_on_purpose"), ("silver.orders", "expected_but_passed")})
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "silver.orders" in line]
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["silver.orders", "2 of 3", "wrong_on_purpose", ""]


def test_warnings_come_before_faults_in_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        runs = RecordedRuns(instance)
        runs.checks = {("silver.orders", name): evaluation(name, passed=False) for name in ("late", "wrong")}
        runs.checks["silver.orders", "late"] = dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(["ratify", "silver", "orders"]),
            check_name="late",
            passed=False,
            metadata={},
            severity=dg.AssetCheckSeverity.WARN,
            description="2 [red]rows[/] are late",
        )
    warnings = warnings_of(runs)
    assert list(warnings) == [("silver.orders", "late")]
    assert not report(faults_of(runs, warnings), "done", warnings.values())
    shown = capsys.readouterr()
    assert shown.err.splitlines()[0] == "silver.orders.late: 2 [red]rows[/] are late"
    assert "check failed: silver.orders.wrong" in shown.err.splitlines()[1]
    assert report([], "done", warnings.values())
    assert "done See it in the Dagster UI" in capsys.readouterr().out

"""What a demo leaves behind: rows, files, syncs."""

import json
from pathlib import Path

from tests.cli.ratify_command import invoke


def assert_it_is_complete(home: Path, printed: str) -> None:
    """Each landed row is in bronze and in silver once, the tables were maintained, and the syncs have nothing left to do."""
    (maintained,) = [line for line in printed.splitlines() if "bronze.flights_raw" in line and "maintained" in line]
    before, after = (int(cell) for cell in maintained.strip("│ ").split("│")[2:4])
    assert before > after == 1
    counts = (
        "SELECT (SELECT count(*) FROM bronze.flights_raw) AS b, (SELECT count(*) FROM silver.flights) AS s, "
        "(SELECT count(*) FROM serving.planes_history WHERE current) AS p"
    )
    (rows,) = json.loads(invoke(home, "sql", counts, "--json", "--engine", "duckdb").stdout)
    landed = sum(
        len(path.read_text().splitlines()) - 1
        for path in (home / "landing/trips").glob("*.csv")
        if "cut-off" not in path.name
    )
    assert (rows["b"], rows["s"]) == (landed, landed)
    assert rows["p"] > 1000
    # The syncs have written what their sources have: there is nothing that they lack.
    planned = json.loads(invoke(home, "sync", "plan", "--json").stdout)
    assert {row["sync"] for row in planned} == {"airports", "carrier_daily", "planes"}
    assert all(row["inserted"] == row["updated"] == row["deleted"] == 0 for row in planned)
    assert invoke(home, "sync", "check").returncode == 0
    done = json.loads(invoke(home, "sync", "run", "airports", "--json").stdout)
    assert [(row["sync"], row["inserted"], row["failed"]) for row in done] == [("airports", 0, 0)]

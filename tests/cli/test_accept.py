"""`ratify accept`, and docs/howto/fix-a-refused-file.md word for word, in a table that exists already."""

import json
from pathlib import Path

import pytest

from tests.cli.commands_in_project import CommandProject
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.page_reader import blocks

FIND, RESCUE, AS_DECLARED = (line for block in blocks("docs/howto/fix-a-refused-file.md") for line in block.commands)
DEFS = "assets/bronze/orders/defs.yaml"
ORDERS = "type: ratify_lakehouse.LandedFiles\nattributes:\n  description: Orders\n  pattern: shop/*.csv\n"
HEADER = "id,amount\n"
RUN = "ratify run bronze.orders --json"


@pytest.mark.long
@pytest.mark.server
def test_a_refused_file_is_accepted_as_the_page_says(tmp_path: Path) -> None:
    """tests/components/test_accepted_files.py has what is refused, and each declaration of the page."""
    with catalog_here(tmp_path / "catalog") as address, CommandProject(tmp_path / "shop-lake", address) as project:
        project.write(DEFS, ORDERS)
        project.write(".ratify/landing/shop/monday.csv", f"{HEADER}1,2.50\n")
        made = project.run(RUN)
        project.write(".ratify/landing/shop/tuesday.csv", f"{HEADER}2,much\n")
        project.write(".ratify/landing/shop/cut.csv", f"{HEADER}3,1.5")
        run, found = project.run(RUN), project.run(FIND)
        rescued, again = project.run(f"{RESCUE} --json"), project.run("ratify accept shop/cut.csv")
        accepted = ORDERS.replace("attributes:\n", "attributes:\n  rescue: true\n")
        project.write(DEFS, f"{accepted}  csv: {{last_line_open: true}}\n")
        declared, checked = project.run(f"{AS_DECLARED} --json"), project.run("ratify check bronze.orders --json")
        shown = project.run("ratify sql 'SELECT id, amount, _rescued_data FROM bronze.orders ORDER BY id' --json")
        drift = project.run("ratify drift bronze.orders --json")
        assert (made.code, run.code) == (0, 0), made.err + run.err
        for name in ("tuesday", "cut"):
            assert f"(moved to _dead_letter/shop/{name}.csv)" in run.err
            assert f"shop/{name}.csv" in found.out
        assert rescued.code == 0, rescued.err
        assert json.loads(rescued.out) == [
            {"table": "bronze.orders", "file": "shop/tuesday.csv", "status": "loaded", "rows": 1, "version": 3}
        ]
        assert f"`rescue: true` is now in {project.folder / DEFS}" in rescued.err
        assert again.code == 1
        assert "shop/cut.csv is refused again and back in _dead_letter/: the last line is cut off" in again.err
        assert (declared.code, json.loads(declared.out)[0]["status"]) == (0, "loaded"), declared.err
        assert {check["check"]: check["passed"] for check in json.loads(checked.out)} == dict.fromkeys(
            (check["check"] for check in json.loads(checked.out)), "yes"
        )
        assert [(row["id"], row["amount"]) for row in json.loads(shown.out)] == [(1, 2.5), (2, None), (3, 1.5)]
        assert json.loads(json.loads(shown.out)[1]["_rescued_data"])["amount"] == "much"
        assert drift.code == 0, drift.out
        assert not [*(project.landing / "_dead_letter").rglob("*.csv*")]

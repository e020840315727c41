"""`ratify new project`: a project of one's own, used by the words of its README."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ratify_lakehouse.cli import new_command
from ratify_lakehouse.cli.new_command import CannotCreate, create_project
from tests.bare_environment import closure, requirements
from tests.cli.new_projects import shell_environment, use_this_environment


@pytest.mark.parametrize("name", ["ratify-lakehouse", "Ratify_Lakehouse", "7", "…"])
def test_a_name_that_a_project_cannot_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CannotCreate, match="choose another, such as my-lake"):
        create_project(tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CannotCreate, match="already exists and is not empty"):
        create_project(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_project_requires_the_distribution_as_it_was_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Installed:
        origin: str | None = None

        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return self.origin

    monkeypatch.setattr(new_command, "distribution", lambda name: Installed())
    released = (create_project(tmp_path / "one") / "pyproject.toml").read_text()
    assert 'dependencies = ["ratify-lakehouse[embedded,ui]==' in released
    Installed.origin = '{"url": "file:///a%20folder/ratify"}'
    built = (create_project(tmp_path / "two") / "pyproject.toml").read_text()
    assert 'dependencies = ["ratify-lakehouse[embedded,ui] @ file:///a%20folder/ratify"]' in built


def test_a_project_has_a_lock_of_all_that_it_requires(tmp_path: Path) -> None:
    lock = (create_project(tmp_path / "my-lake") / "requirements.lock").read_text()
    locked = {line.split("==")[0] for line in lock.splitlines()}
    assert closure(requirements("embedded", "ui")) | {"dagster-dg-cli", "pytest"} <= locked | {"ratify-lakehouse"}
    assert re.search(r"://|@", lock) is None
    makefile = (tmp_path / "my-lake" / "Makefile").read_text()
    assert "$(READY): pyproject.toml requirements.lock" in makefile
    assert "--constraint requirements.lock -e '.[dev]'" in makefile


@pytest.fixture
def new_project(tmp_path: Path) -> Path:
    """A project at a path with a space and an umlaut, that uses this environment."""
    made = create_project(tmp_path / "söme where" / "my-lake")
    use_this_environment(made)
    return made


def make(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = shell_environment()
    return subprocess.run(["make", *words], cwd=project, env=env, capture_output=True, text=True, timeout=600, check=False)


ROOT = Path(__file__).parents[2]


@pytest.mark.server
def test_the_commands_of_its_readme_work(new_project: Path) -> None:
    """Without a table; docs/tutorial.md, which a test follows, goes on from there."""
    # Together they are set up once.
    empty = make(new_project, "demo", "test")
    assert empty.returncode == 0, empty.stdout + empty.stderr
    assert "declares no table yet" in empty.stdout
    assert "2 passed" in empty.stdout


@pytest.mark.long
@pytest.mark.server
def test_its_tests_find_a_table_that_cannot_be_loaded(new_project: Path) -> None:
    """It reads what nothing makes; test_declaration_mistakes.py has what is said of each mistake."""
    wrong = new_project / "assets" / "silver" / "orders"
    wrong.mkdir(parents=True)
    (wrong / "defs.yaml").write_text("type: ratify_lakehouse.SqlTable\nattributes: {description: Orders, keys: [id]}\n")
    (wrong / "orders.sql").write_text("SELECT id, amount FROM bronze.nothing\n")
    tested = make(new_project, "test")
    assert tested.returncode != 0
    assert "no asset of the project makes bronze.nothing" in tested.stdout + tested.stderr


@pytest.mark.server
def test_without_spark_no_java_is_needed(tmp_path: Path) -> None:
    """From landed files to a table of a query, its checks and its history, where no Java could start."""
    made = create_project(tmp_path / "my-lake", without_spark=True)
    use_this_environment(made)
    shell = shell_environment()
    without_java = shell | {"RATIFY_JAVA_HOME": str(tmp_path / "no java")}

    def run(*command: str, env: Mapping[str, str] = without_java) -> str:
        done = subprocess.run(command, cwd=made, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    landing, dg = made / ".ratify" / "landing" / "shop", str(made / ".venv" / "bin" / "dg")
    landing.mkdir(parents=True)
    (landing / "orders.csv").write_text("order_id,customer,amount\n1,ann,10\n2,bob,20\n3,ann,30\n")
    # As the tutorial scaffolds it.
    orders = made / "assets" / "bronze" / "orders"
    orders.mkdir(parents=True)
    (orders / "defs.yaml").write_text(
        "type: ratify_lakehouse.LandedFiles\nattributes: {description: Orders, pattern: shop/*.csv}\n"
    )
    scaffold = (dg, "scaffold", "defs", "ratify_lakehouse.SqlTable", "gold/customers")
    run(*scaffold, "--source", "bronze.orders", "--key", "customer")
    table = made / "assets" / "gold" / "customers"
    assert "engine: duckdb" in (table / "defs.yaml").read_text()
    declared = (table / "defs.yaml").read_text().replace("engine: duckdb", "engine: duckdb\n  strategy: incremental")
    (table / "defs.yaml").write_text(declared)
    (table / "customers.sql").write_text(
        "SELECT customer, count(*) AS orders, CAST(sum(amount) AS BIGINT) AS amount FROM bronze.orders GROUP BY customer\n"
    )
    # Flink, where it is installed, is made ready.
    assert "Ready: " in run("make", "setup", env=shell)
    shown = run(str(made / ".venv" / "bin" / "ratify"), "demo")
    assert "Every step passed." in shown
    assert re.search(r"ratify\.gold\.customers +│ +2 ", shown), shown
    assert not list((made / ".ratify" / "logs").glob("spark*"))


PAGE = (ROOT / "docs" / "own-tables.md").read_text().partition("## In Python")[2]
SHOW = """
import orchestration.definitions as location
specs = {spec.key.to_user_string(): spec for spec in location.defs.resolve_all_asset_specs()}
invoices = specs["ratify/bronze/invoices"]
print(invoices.owners, [dep.asset_key.to_user_string() for dep in specs["largest_order"].deps])
print(sorted(job.name for job in location.defs.get_repository_def().get_all_jobs() if not job.name.startswith("__")))
"""


@pytest.mark.server
def test_python_beside_yaml_needs_no_registration(tmp_path: Path) -> None:
    """A plain asset and a subclass of a kind, as docs/own-tables.md has them."""
    made = create_project(tmp_path / "my-lake")
    blocks = re.findall(r"^```(?:python|yaml)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    named = {"assets/gold/largest_order.py": blocks[0]}
    named |= {match[1]: text for text in blocks if (match := re.match(r"# (assets/\S+)\n", text))}
    assert set(named) == {
        *("assets/gold/largest_order.py", "assets/gold/reports.py", "assets/kinds.py"),
        "assets/bronze/invoices/defs.yaml",
    }
    for name, text in named.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    command, env = [sys.executable, "-c", SHOW], shell_environment()
    shown = subprocess.run(command, cwd=made, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines() == [
        "['team:partner-team'] ['ratify/silver/orders']",
        "['clean', 'files', 'full_checks', 'ingest', 'maintenance', 'medallion']",
    ]

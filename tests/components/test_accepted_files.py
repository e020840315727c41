"""Refused files that are accepted: by each declaration of the how-to page, and by `ratify accept`, without Dagster."""

import re
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from ratify_lakehouse.cli import file_acceptance
from ratify_lakehouse.cli.file_acceptance import NotAccepted, accept_file
from ratify_lakehouse.cli.table_run import TableRun
from ratify_lakehouse.components.landed_files_component import LandedFiles
from ratify_lakehouse.definitions import project_tables
from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, Status
from ratify_lakehouse.ingest.load.batch_loading import load_batch
from ratify_lakehouse.ingest.load.landed_table import ensure_landed_table
from ratify_lakehouse.ingest.load.post_load_actions import apply_post_load_actions
from ratify_lakehouse.landing.landing_zone import LandingZone
from ratify_lakehouse.settings import Settings
from tests.cli.ratify_command import invoke
from tests.components.sparkless import Sparkless, sparkless

__all__ = ["sparkless"]

pytestmark = pytest.mark.server

PAGE = (Path(__file__).parents[2] / "docs/howto/fix-a-refused-file.md").read_text()
DECLARATIONS: dict[str, list[str]] = {
    reason: re.findall(r"`([a-z_]+: [^`]+)`", how)
    for reason, how in re.findall(r"^ +\| ([^|`]+?) \| (.*) \|$", PAGE, re.MULTILINE)
}
FIRST = "id,amount\n1,2.50\n"
# A file that is refused for each reason of the page, and what the table has of it with each of the declarations.
REFUSED: dict[str, tuple[str, bytes]] = {
    "a value is not of its column's type": ("2.csv", b"id,amount\n2,much\n"),
    "a column that the table does not have": ("2.csv", b"id,amount,note\n2,1.5,new\n"),
    "the last line has no line end": ("2.csv", b"id,amount\n2,1.5"),
    "other bytes under a name that was loaded": ("1.csv", b"id,amount\n2,1.5\n"),
    "another delimiter, encoding, NULL, or decimal comma": ("2.csv", "id;amount;ä\n2;1,5;NA\n".encode("latin-1")),
}


class AcceptingTable:
    """A folder with one declaration, of which the module of declared tables is a stand-in."""

    def __init__(self, lake: Sparkless, root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lake, self.name = lake, name
        self.folder, self.landing = root / "bronze" / name, root / "landing"
        self.folder.mkdir(parents=True)
        (self.landing / name).mkdir(parents=True)
        self.zone = LandingZone(url=str(self.landing))
        monkeypatch.setenv("LANDING_URL", str(self.landing))
        monkeypatch.setattr(file_acceptance, "UnityCatalog", lambda: lake.catalog)
        self.declare("")

    def declare(self, more: str) -> None:
        text = f"type: ratify_lakehouse.LandedFiles\nattributes:\n  description: D\n  pattern: {self.name}/*.csv\n{more}"
        (self.folder / "defs.yaml").write_text(text)

    @property
    def component(self) -> LandedFiles:
        attributes = yaml.safe_load((self.folder / "defs.yaml").read_text())["attributes"]
        component = LandedFiles.resolve_from_yaml(yaml.safe_dump(attributes))
        component.place(self.folder)
        return component

    @property
    def source(self) -> Source:
        return self.component.source

    def land(self, name: str, content: bytes) -> None:
        (self.landing / self.name / name).write_bytes(content)

    def run(self, files: Sequence[str] = ()) -> list[Status]:
        """Load files as a run of the table does, or all that are in the landing zone."""
        source = self.source
        found = self.zone.look(files) if files else self.zone.files(source.pattern)
        ensure_landed_table(self.lake.spark, self.lake.duckdb, self.zone, source, found)
        outcome = load_batch(self.lake.duckdb, self.zone, source, found)
        apply_post_load_actions(self.zone, Settings().discovery, source, outcome)
        return [file.status for file in outcome.files]

    def ids(self) -> list[int]:
        with self.lake.duckdb.session() as session:
            return [row for (row,) in session.rows(f"SELECT id FROM uc.bronze.{self.name} ORDER BY id")]


@pytest.fixture(scope="module")
def ledger(sparkless: Sparkless) -> Sparkless:
    sparkless.spark.ensure_table(LANDED_FILES)
    return sparkless


def test_each_reason_of_the_page_has_a_file() -> None:
    assert DECLARATIONS.keys() - {"reason"} == REFUSED.keys()
    assert all(DECLARATIONS[reason] for reason in REFUSED)


@pytest.mark.parametrize("reason", REFUSED)
def test_a_declaration_of_the_page_accepts_the_file(
    ledger: Sparkless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """In a table that has rows already."""
    name, content = REFUSED[reason]
    several = "decimal" in reason
    given = [DECLARATIONS[reason]] if several else [[each] for each in DECLARATIONS[reason]]
    for number, declaration in enumerate(given):
        table = f"r{list(REFUSED).index(reason)}_{number}"
        project = AcceptingTable(ledger, tmp_path, table, monkeypatch)
        project.land("1.csv", FIRST.encode())
        assert project.run() == [Status.LOADED]
        project.land(name, content)
        assert project.run([f"{table}/{name}"]) == [Status.REFUSED]
        (project.landing / "_dead_letter" / table / name).rename(project.landing / table / name)
        lines = [*declaration, *(["rescue: true"] if several else [])]
        project.declare("".join(f"  {line}\n" for line in lines))
        assert project.run([f"{table}/{name}"]) == [Status.LOADED], declaration
        assert project.ids() == ([2] if "on_rewrite: replace" in declaration else [1, 2])


@pytest.fixture
def accepting(ledger: Sparkless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AcceptingTable:
    """A project whose runs are those of `AcceptingTable.run`; one file of it is loaded, and one refused."""
    project = AcceptingTable(ledger, tmp_path, f"accepting_{uuid4().hex[:8]}", monkeypatch)

    def run(names: Sequence[str], *, files: Sequence[str]) -> TableRun:
        assert names == [f"bronze.{project.name}"]
        project.run(files)
        return TableRun([], [], [])

    class Declared:
        @property
        def components(self) -> dict[str, LandedFiles]:
            return {f"bronze.{project.name}": project.component}

    def declared() -> Declared:
        return Declared()

    declared.cache_clear = lambda: None  # pyright: ignore[reportFunctionMemberAccess]
    monkeypatch.setattr(project_tables, "sources", lambda: [project.source])
    monkeypatch.setattr(project_tables, "declared_tables", declared)
    monkeypatch.setattr(file_acceptance, "run_tables", run)
    project.land("1.csv", FIRST.encode())
    project.land("2.csv", b"id,amount\n2,much\n")
    assert project.run() == [Status.LOADED, Status.REFUSED]
    return project


def test_a_file_is_accepted_by_the_declaration_or_with_what_does_not_fit(accepting: AcceptingTable) -> None:
    path, letter = f"{accepting.name}/2.csv", accepting.landing / "_dead_letter" / accepting.name / "2.csv"
    assert letter.exists()
    again = accept_file(path)
    assert again.row["status"] == "refused"
    assert f"{path} is refused again and back in _dead_letter/: row 1: column amount: 'much'" in again.faults[0]
    assert letter.exists()
    # However it is named, and where the declaration says no.
    accepting.declare("  rescue: false # never\n")
    found = accept_file(str(letter), rescue=True)
    assert (found.row["status"], found.row["rows"], found.faults) == ("loaded", 1, [])
    assert found.declared == str(accepting.folder / "defs.yaml")
    assert "  rescue: true\n" in Path(found.declared).read_text()
    assert accepting.ids() == [1, 2]
    assert not [*letter.parent.iterdir()]
    with pytest.raises(NotAccepted, match=rf"{path} is loaded already: bronze\.{accepting.name} has its rows since version"):
        accept_file(path)


def test_a_refused_file_that_was_not_moved_is_accepted_where_it_is(
    accepting: AcceptingTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISCOVERY_DEAD_LETTER", "")
    accepting.land("3.csv", b"id,amount\n3,much\n")
    path = f"{accepting.name}/3.csv"
    assert accepting.run([path]) == [Status.REFUSED]
    assert accept_file(path, rescue=True).row["status"] == "loaded"
    assert (accepting.landing / path).exists()


def test_what_is_no_refused_file_is_said(accepting: AcceptingTable) -> None:
    name = accepting.name
    accepting.land("3.csv", FIRST.encode())
    (accepting.landing / "other.csv").write_text(FIRST)
    for file, message in {
        f"{name}/4.csv": rf"There is no file {name}/4\.csv in the landing zone .* none was refused.*ratify sql",
        f"{name}/3.csv": rf"{name}/3\.csv was never refused: `ratify run bronze\.{name}` loads it",
        f"{name}/1.csv": rf"{name}/1\.csv is loaded already",
        "other.csv": r"other\.csv belongs to no table: no declared `pattern`",
    }.items():
        with pytest.raises(NotAccepted, match=message):
            accept_file(file)
    # A correction has landed beside the refused one; then both are gone.
    accepting.land("2.csv", b"id,amount\n2,3.5\n")
    with pytest.raises(NotAccepted, match=rf"Another version of {name}/2\.csv has landed since: `ratify run"):
        accept_file(f"{name}/2.csv")
    (accepting.landing / name / "2.csv").unlink()
    (accepting.landing / "_dead_letter" / name / "2.csv").unlink()
    with pytest.raises(NotAccepted, match=rf"{name}/2\.csv was refused, and is no longer in the landing zone"):
        accept_file(f"{name}/2.csv")


def test_a_declaration_that_cannot_be_changed_is_named(accepting: AcceptingTable) -> None:
    text = (accepting.folder / "defs.yaml").read_text()
    flow = "type: ratify_lakehouse.LandedFiles\nattributes: {description: D, pattern: " + f"'{accepting.name}/*.csv'" + "}\n"
    (accepting.folder / "defs.yaml").write_text(flow)
    with pytest.raises(NotAccepted, match=r"Write `rescue: true` into the attributes of bronze.* in .*defs\.yaml"):
        accept_file(f"{accepting.name}/2.csv", rescue=True)
    assert (accepting.folder / "defs.yaml").read_text() == flow != text


def test_one_of_the_two_ways_is_said(tmp_path: Path) -> None:
    done = invoke(tmp_path, "accept", "a.csv", "--rescue", "--as-declared")
    assert done.returncode == 2
    assert "give either --rescue or --as-declared" in done.stderr

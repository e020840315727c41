"""Every pair of attributes of `LandedFiles` is refused, or a file is loaded by it, and then its correction."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.landed_files_component import LandedFiles
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import InvalidDeclaration
from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from ratify_lakehouse.ingest.load.batch_loading import load_batch
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.components.attribute_pairs import covering
from tests.embedded.catalog.harness import CatalogProcess
from tests.engines.declared_tables import create_declared

_FEED, _APPEND_ONLY = "delta.enableChangeDataFeed", "delta.appendOnly"
_VALUES: Mapping[str, list[Any]] = {
    "on_rewrite": ["refuse", "append", "replace"],
    "change_data_feed": [False, True],
    "table_properties": [{}, {_FEED: "TRUE"}, {_APPEND_ONLY: "TRUE"}],
    "cluster_by": [[], ["k"]],
    "rescue": [False, True],
    "evolving": [False, True],
    "format": ["csv", None],
    "csv": [{}, {"exact_header": True}, {"delimiter": ";"}],
    "encoding": ["utf-8", "utf-16"],
    "landed": ["keep", "delete", "rewrite"],
}


def refused(case: Mapping[str, Any]) -> bool:
    """Whether the documentation says that these do not go together."""
    kept = case.get("change_data_feed") or case.get("table_properties", {}).keys() & {_FEED, _APPEND_ONLY}
    return case.get("on_rewrite") == "replace" and bool(kept)


CASES = covering(_VALUES, refused)


def test_every_pair_is_in_a_case() -> None:
    for one, other in itertools.combinations(_VALUES, 2):
        for pair in itertools.product(_VALUES[one], _VALUES[other]):
            assert any((case[one], case[other]) == pair for case in CASES)
    assert len(CASES) < 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogProcess]:
    server = CatalogProcess.start(tmp_path_factory.mktemp("pairs"))
    with server.client() as client:
        create_declared(client, LANDED_FILES)
    yield server
    server.stop()


def declared(root: Path, number: int, case: Mapping[str, Any]) -> Source:
    """The source of a folder with that declaration."""
    folder = root / "bronze" / f"kv{number}"
    folder.mkdir(parents=True)
    columns = [{"name": "k", "type": "string"}, {"name": "v", "type": "bigint"}]
    given = {name: value for name, value in case.items() if value is not None}
    attributes = {"description": "Pairs", "pattern": f"kv{number}/*.csv", "columns": columns} | given
    text = yaml.safe_dump({"type": "ratify_lakehouse.LandedFiles", "attributes": attributes})
    (folder / "defs.yaml").write_text(text)
    component = LandedFiles.resolve_from_yaml(yaml.safe_dump(attributes))
    component.place(folder)
    return component.source


@pytest.mark.server
def test_a_declaration_is_refused_or_its_files_load(server: CatalogProcess, tmp_path: Path) -> None:
    zone = LandingZone(url=str(tmp_path / "landing"))
    engine = DuckDB(catalog=UnityCatalog(host=server.url, token=server.token), threads=1)
    wrong = dict[str, str]()
    for number, case in enumerate(CASES):
        try:
            source = declared(tmp_path, number, case)
        except InvalidDeclaration as error:
            if not refused(case):
                wrong[str(case)] = str(error)
            continue
        if refused(case):
            wrong[str(case)] = "accepted"
            continue
        with server.client() as client:
            create_declared(client, source.table)
        try:
            found = loaded(engine, zone, source, tmp_path / "landing" / f"kv{number}", case)
        except Exception as error:  # noqa: BLE001 whatever is raised, the declaration was accepted
            found = f"{type(error).__name__}: {error}"
        rows = {"replace": [("a", 2)], "append": [("a", 1), ("a", 2)], "refuse": [("a", 1)]}[case["on_rewrite"]]
        if found != rows:
            wrong[str(case)] = str(found)
    engine.close()
    assert not wrong, "\n".join(f"{case}: {what}" for case, what in wrong.items())


def loaded(engine: DuckDB, zone: LandingZone, source: Source, folder: Path, case: Mapping[str, Any]) -> object:
    """The rows after a file, and then its correction, was loaded."""
    folder.mkdir(parents=True)
    delimiter = case["csv"].get("delimiter", ",")
    for value in (1, 2):
        text = f"k,v\na,{value}\n".replace(",", delimiter)
        (folder / "1.csv").write_text(text, encoding=case["encoding"])
        load_batch(engine, zone, source, zone.look([f"{folder.name}/1.csv"]))
    with engine.session() as session:
        return session.rows(f"SELECT k, v FROM uc.{source.table_name} ORDER BY ALL")

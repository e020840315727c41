"""Links from the pages of assets to their code."""

import subprocess
import warnings
from pathlib import Path

import dagster as dg
import pytest

from orchestration.definitions import defs
from ratify_lakehouse.components.table_component import TableComponent
from ratify_lakehouse.definitions.code_links import web_address, with_repository_links


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/acme/lake.git", "https://github.com/acme/lake"),
        ("https://me:s3cret@github.com/acme/lake", "https://github.com/acme/lake"),
        ("git@github.com:acme/lake.git", "https://github.com/acme/lake"),
        ("ssh://git@gitlab.acme.com:2222/data/lake.git", "https://gitlab.acme.com/data/lake"),
        ("http://git.acme.com:8080/lake/", "https://git.acme.com:8080/lake"),
        ("/srv/git/lake.git", None),
        ("../lake", None),
        ("file:///srv/git/lake", None),
        ("", None),
    ],
)
def test_the_address_of_a_remote(remote: str, address: str | None) -> None:
    assert web_address(remote) == address


def git(folder: Path, *line: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    return subprocess.run(["git", *who, *line], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def an_asset(file: Path) -> dg.Definitions:
    found = dg.CodeReferencesMetadataValue(
        code_references=[
            dg.LocalFileCodeReference(file_path=str(file), line_number=3),
            dg.LocalFileCodeReference(file_path="/elsewhere/x.py"),
        ]
    )
    return dg.Definitions(assets=[dg.AssetSpec("a", metadata={"dagster/code_references": found}), dg.AssetSpec("b")])


def links(definitions: dg.Definitions, key: str = "a") -> list[str]:
    spec = next(spec for spec in definitions.resolve_all_asset_specs() if spec.key == dg.AssetKey(key))
    return [each.source for each in spec.metadata["dagster/code_references"].code_references]


@pytest.mark.parametrize(("host", "pages"), [("github.com", "/blob"), ("gitlab.com", "/-/blob")])
def test_a_clone_with_a_remote_links_to_the_commit(tmp_path: Path, host: str, pages: str) -> None:
    root = tmp_path.resolve()
    file = root / "assets" / "a.py"
    file.parent.mkdir()
    file.write_text("a\n")
    git(root, "init")
    git(root, "remote", "add", "origin", f"git@{host}:acme/lake.git")
    assert links(with_repository_links(an_asset(file), root)) == [f"{file}:3", "/elsewhere/x.py"]
    git(root, "add", ".")
    git(root, "commit", "-m", "a")
    commit = git(root, "rev-parse", "HEAD")
    plain = an_asset(file)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        linked = with_repository_links(plain, file.parent)
    url = f"https://{host}/acme/lake{pages}/{commit}/assets/a.py#L3"
    assert links(linked) == [f"{file}:3", "/elsewhere/x.py", url]
    assert (
        "dagster/code_references"
        not in {spec.key: spec for spec in linked.resolve_all_asset_specs()}[dg.AssetKey("b")].metadata
    )


def test_no_clone_or_no_git_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = links(an_asset(tmp_path / "a.py"))
    assert links(with_repository_links(an_asset(tmp_path / "a.py"), tmp_path)) == before
    monkeypatch.setenv("PATH", "")
    assert links(with_repository_links(an_asset(tmp_path / "a.py"), Path(__file__).parent)) == before


def test_every_table_of_the_project_names_its_code() -> None:
    made = [spec for asset in defs.assets or () if isinstance(asset, dg.AssetsDefinition) for spec in asset.specs]
    assert made
    for spec in made:
        references = spec.metadata["dagster/code_references"].code_references
        local = [each for each in references if isinstance(each, dg.LocalFileCodeReference)]
        assert local, spec.key
        assert all(Path(each.file_path).exists() for each in local), spec.key


def test_a_declared_table_names_its_yaml_and_its_queries(tmp_path: Path) -> None:
    for name in ("defs.yaml", "t.sql", "other.sql", "notes.txt"):
        (tmp_path / name).write_text("x\n")
    position = type("Position", (), {"start": type("Start", (), {"line": 2})})
    context = dg.ComponentTree.for_test().load_context
    found = TableComponent.get_code_references_for_yaml(tmp_path / "defs.yaml", position, context)
    assert [each.source for each in found] == [str(tmp_path / name) for name in ("defs.yaml:2", "other.sql", "t.sql")]

"""Links from an asset's page to its code: to files here, and to the repository at the commit that is checked out."""

import re
import subprocess
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

_REFERENCES = "dagster/code_references"
_SSH = re.compile(r"(?:ssh://)?[\w.-]+@([\w.-]+)(?::\d+/|[:/])(.+)")
_WEB = re.compile(r"https?://(?:[^@/]+@)?([\w.:-]+)/(.+)")


def web_address(remote: str) -> str | None:
    """Return the address of a repository's pages; None if the remote is none of a server, such as a folder.

    Credentials in the remote are no part of it.
    """
    if found := _WEB.fullmatch(remote) or _SSH.fullmatch(remote):
        host, path = found.groups()
        return f"https://{host}/{path.rstrip('/').removesuffix('.git')}"
    return None


def with_modules(definitions: dg.Definitions) -> dg.Definitions:
    """Return definitions whose assets in Python have the place of their functions; components give their assets' own."""
    with _no_warnings():
        assets = [
            dg.with_source_code_references([asset])[0] if _is_of_python(asset) else asset
            for asset in definitions.assets or ()
        ]
    given = {name: getattr(definitions, name) for name in type(definitions).__annotations__}
    return dg.Definitions(**{**given, "assets": assets})


def _is_of_python(asset: object) -> bool:
    return isinstance(asset, dg.AssetsDefinition) and not any(_REFERENCES in spec.metadata for spec in asset.specs)


def with_repository_links(definitions: dg.Definitions, folder: Path) -> dg.Definitions:
    """Add to each asset that names files of a git clone where these are on the pages of its remote `origin`.

    Args:
        definitions: Their assets name their files already, as components and `dg.with_source_code_references` do.
        folder: A folder of the clone; without one, or without a remote on a server, nothing is added.
    """
    root, commit, remote = (_git(folder, *line) for line in _QUESTIONS)
    address = web_address(remote)
    if not (root and commit and address):
        return definitions
    with _no_warnings():
        return definitions.map_asset_specs(func=_linking(Path(root), f"{address}{_pages(address)}/{commit}"))


_QUESTIONS = (("rev-parse", "--show-toplevel"), ("rev-parse", "HEAD"), ("remote", "get-url", "origin"))


def _pages(address: str) -> str:
    return "/-/blob" if "gitlab" in address.split("/")[2] else "/blob"


def _git(folder: Path, *line: str) -> str:
    """What git answers; empty if it does not."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *line], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _linking(root: Path, pages: str) -> Callable[[dg.AssetSpec], dg.AssetSpec]:
    def linked(spec: dg.AssetSpec) -> dg.AssetSpec:
        found = spec.metadata.get(_REFERENCES)
        if not isinstance(found, dg.CodeReferencesMetadataValue):
            return spec
        links = [
            dg.UrlCodeReference(url=f"{pages}/{path.relative_to(root).as_posix()}{_line(each)}", label=path.name)
            for each in found.code_references
            if isinstance(each, dg.LocalFileCodeReference) and (path := Path(each.file_path)).is_relative_to(root)
        ]
        references = dg.CodeReferencesMetadataValue(code_references=[*found.code_references, *links])
        return spec.merge_attributes(metadata={_REFERENCES: references})

    return linked


def _line(reference: dg.LocalFileCodeReference) -> str:
    return f"#L{reference.line_number}" if reference.line_number else ""


@contextmanager
def _no_warnings() -> Generator[None]:
    """Every command would begin with the warnings that parts of Dagster which are used here may still change."""
    with warnings.catch_warnings():
        for category in (dg.BetaWarning, dg.PreviewWarning):
            warnings.simplefilter("ignore", category)
        yield

"""A Python environment of the project's wheel and some of the distributions that are installed here; it needs no network."""

import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

Parts = tuple[str, ...]


def requirements(*extras: str) -> list[str]:
    """Return what the project requires with these extras."""
    optional = PROJECT["project"]["optional-dependencies"]
    return [*PROJECT["project"]["dependencies"], *(text for extra in extras for text in optional[extra])]


def build_wheel(folder: Path) -> Path:
    """Build the project's wheel with the backend that is installed here."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (found,) = folder.glob("ratify_lakehouse-*.whl")
    return found


def environment_with(wheel: Path, folder: Path, *extras: str) -> Path:
    """Return the scripts of an environment that has the wheel and what these extras require."""
    # Without the editable installation, which would bring the source tree.
    scripts = bare_environment(folder, closure(requirements(*extras)) - {PROJECT["project"]["name"]}).parent
    install = ["pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(scripts / "python"), str(wheel)]
    subprocess.run([Path(sys.executable).with_name("uv"), *install], check=True, capture_output=True, timeout=60)
    return scripts


def canonical(name: str) -> str:
    """Return the one spelling of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(requirements: Iterable[str]) -> set[str]:
    """Return the names of the distributions that these requirements install here: themselves, and all that they require."""
    found, seen = set[str](), set[tuple[str, frozenset[str]]]()
    wanted = [Requirement(text) for text in requirements]
    while wanted:
        requirement = wanted.pop()
        name, extras = canonical(requirement.name), frozenset(requirement.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            requires = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        found.add(name)
        for text in requires:
            candidate = Requirement(text)
            if not candidate.marker or any(candidate.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                wanted.append(candidate)
    return found


def bare_environment(folder: Path, names: set[str]) -> Path:
    """Create a virtual environment of links to the files of these distributions, and return its Python."""
    venv.create(folder, symlinks=True)
    mine, others = list[Parts](), list[Parts]()
    for installed in distributions():
        paths = [path.parts for path in installed.files or [] if path.parts[0] != ".."]
        (mine if canonical(installed.name) in names else others).extend(paths)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    _link(packages, Path(sysconfig.get_path("purelib")), mine, others)
    return folder / "bin" / "python"


def _link(folder: Path, origin: Path, mine: list[Parts], others: list[Parts]) -> None:
    """Link what only our distributions have as a whole; go into a folder that others share, as namespace packages do."""
    shared = _by_first(others)
    for name, tails in _by_first(mine).items():
        if name in shared and all(tails):
            (folder / name).mkdir()
            _link(folder / name, origin / name, tails, shared[name])
        else:
            (folder / name).symlink_to(origin / name)


def _by_first(paths: list[Parts]) -> dict[str, list[Parts]]:
    grouped = dict[str, list[Parts]]()
    for first, *tail in paths:
        grouped.setdefault(first, []).append(tuple(tail))
    return grouped

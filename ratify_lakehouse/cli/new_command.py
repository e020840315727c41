"""`ratify new`: a project for tables of one's own."""

import json
import re
import shutil
from importlib.metadata import distribution
from pathlib import Path
from typing import Annotated

import typer

from ratify_lakehouse.cli.terminal_output import out
from ratify_lakehouse.definitions.project_folders import sample_root
from ratify_lakehouse.distribution import DISTRIBUTION, distribution_version
from ratify_lakehouse.errors import TerminalError
from ratify_lakehouse.settings import NO_SPARK

_TEMPLATE = Path(__file__).parent / "project_template"
_AS_IN_THE_SAMPLE = ("orchestration", "resources")
_HIDDEN = {"gitignore": ".gitignore", "env.example": ".env.example"}

new_app = typer.Typer(no_args_is_help=True, help="Make a project of your own.")


class CannotCreate(TerminalError):
    """A project cannot be made there."""


@new_app.command()
def project(
    folder: Annotated[Path, typer.Argument(help="The new folder; its name becomes the project's.")],
    without_spark: Annotated[bool, typer.Option("--without-spark", help="DuckDB computes all tables; no Java.")] = False,
) -> None:
    """Make a project like the sample, without its tables: a folder in which `make demo`, `make dev` and `make test` work."""
    created = create_project(folder.expanduser().absolute(), without_spark=without_spark)
    out.print(f"{created} is ready. In it, run `make demo`; README.md has the first steps.", highlight=False)


def create_project(folder: Path, *, without_spark: bool = False) -> Path:
    """Write the files of a project into a new folder, or an empty one, and return it.

    Args:
        folder: The folder.
        without_spark: DuckDB computes all of its tables, and no Spark is started.

    Raises:
        CannotCreate: the folder has files, or its name is none for a distribution.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CannotCreate(f"{folder} already exists and is not empty: choose a new folder.")
    name = re.sub(r"[\W_]+", "-", folder.name).strip("-").lower()
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or name == DISTRIBUTION:
        raise CannotCreate(f"{folder.name!r} cannot be the name of a project: choose another, such as my-lake.")
    names = {"distribution": name, "ratify": _requirement()}
    # Its texts are no HTML.
    templates = Environment(loader=FileSystemLoader(_TEMPLATE), undefined=StrictUndefined, keep_trailing_newline=True)  # noqa: S701
    for file in sorted(path for path in _TEMPLATE.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        name = file.relative_to(_TEMPLATE)
        target = folder / name.with_name(_HIDDEN.get(name.name, name.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".j2":
            target.with_suffix("").write_text(templates.get_template(str(name)).render(names))
        else:
            shutil.copyfile(file, target)
    for package in _AS_IN_THE_SAMPLE:
        shutil.copytree(sample_root() / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    # The versions that this release is tested with; more than the project needs, as constraints.
    shutil.copyfile(sample_root() / "requirements.lock", folder / "requirements.lock")
    (folder / "assets").mkdir()
    (folder / "assets" / "__init__.py").write_text('"""The tables: each is a folder <schema>/<table> with a defs.yaml."""\n')
    # Commands find the project by it, from any of its folders.
    example = (folder / ".env.example").read_text()
    (folder / ".env").write_text(example.replace("#SPARK_REMOTE=", f"SPARK_REMOTE={NO_SPARK}") if without_spark else example)
    return folder


def _requirement() -> str:
    """This distribution as another project requires it: by its version, or by its folder where it was installed from one."""
    extras = f"{DISTRIBUTION}[embedded,ui]"
    origin = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    return f"{extras} @ {origin['url']}" if origin.get("url") else f"{extras}=={distribution_version()}"

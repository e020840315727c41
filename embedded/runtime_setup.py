"""What must be there before a stack can start: a Java, and the jars that it runs."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from embedded import connector_jar, jvm_jars
from embedded.java_runtime import Java, choose_java
from embedded.private_files import Progress
from embedded.stack_state import StackConfig


@dataclass(frozen=True)
class Runtime:
    """The JVM side, ready to start."""

    java: Java
    class_path: tuple[Path, ...]


def prepare(config: StackConfig, progress: Progress, environ: Mapping[str, str] | None = None) -> Runtime:
    """Choose the Java, and download and compile what is missing; milliseconds when nothing is.

    `environ` is where JAVA_HOME and PATH are looked up: by default this process's environment.

    Raises:
        UnsuitableJava, JarsUnavailable, ConnectorBuildFailed: as their own functions say.
    """
    java = choose_java(config.java_home, os.environ if environ is None else environ)
    published = config.unity_spark_package
    more = {"s3": bool(config.s3), "kafka": config.kafka}
    sets = dict.fromkeys((*config.jar_sets, *(name for name, wanted in more.items() if wanted)))
    resolved = jvm_jars.resolve(list(sets), config.jars, java, progress, extra=published)
    connector = connector_jar.build(resolved, config.jars, java, progress, catalog=published is None)
    return Runtime(java, (*resolved, connector))

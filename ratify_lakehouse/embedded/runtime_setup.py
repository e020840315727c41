"""What a stack needs before it can start: a Java, and the jars that it runs."""

import os
from dataclasses import dataclass
from pathlib import Path

from ratify_lakehouse.embedded import connector_jar, jvm_jars
from ratify_lakehouse.embedded.java_runtime import Java, choose_java
from ratify_lakehouse.embedded.private_files import Progress
from ratify_lakehouse.embedded.stack_state import StackConfig


@dataclass(frozen=True)
class Runtime:
    """The JVM side, ready to start."""

    java: Java
    class_path: tuple[Path, ...]


def prepare(config: StackConfig, progress: Progress) -> Runtime:
    """Choose the Java, and download and compile what is missing; this takes milliseconds when nothing is.

    Raises:
        UnsuitableJava, JarsUnavailable, ConnectorBuildFailed: see `choose_java`, `resolve` and `build`.
    """
    java = choose_java(config.java_home, os.environ)
    published = config.unity_spark_package
    optional = {"s3": bool(config.s3), "kafka": config.kafka}
    sets = dict.fromkeys((*config.jar_sets, *(name for name, wanted in optional.items() if wanted)))
    resolved = jvm_jars.resolve(list(sets), config.jars_dir, java, progress, extra=published)
    connector = connector_jar.build(resolved, config.jars_dir, java, progress, catalog=published is None)
    return Runtime(java, (*resolved, connector))

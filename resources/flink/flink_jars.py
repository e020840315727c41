"""The jars of Delta's connector for Flink, and whether they are all there.

A jar that is missing is not always an error in Flink: without jts-core jobs end well, and their commits are empty. So the
set is looked through before a job runs: each artifact is known by a class of it, for a file may have any name, and one file
may hold them all.
"""

import os
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from resources.errors import FlinkUnavailable

NEEDED: Mapping[str, str] = {
    "delta-flink": "io/delta/flink/sink/sql/FlinkUnityCatalogFactory",
    "delta-kernel-api": "io/delta/kernel/Table",
    "delta-kernel-defaults": "io/delta/kernel/defaults/engine/DefaultEngine",
    "delta-kernel-unitycatalog": "io/delta/kernel/unitycatalog/UCCatalogManagedClient",
    "delta-storage": "io/delta/storage/LogStore",
    "unitycatalog-client": "io/unitycatalog/client/ApiClient",
    "unitycatalog-hadoop": "io/unitycatalog/hadoop/UCCredentialHadoopConfs",
    "hadoop-client-api": "org/apache/hadoop/conf/Configuration",
    "hadoop-client-runtime": "org/apache/hadoop/shaded/com/google/common/collect/ImmutableMap",
    "parquet-column": "org/apache/parquet/column/ParquetProperties",
    "parquet-common": "org/apache/parquet/bytes/BytesInput",
    "parquet-format-structures": "org/apache/parquet/format/FileMetaData",
    "parquet-hadoop": "org/apache/parquet/hadoop/ParquetWriter",
    "parquet-jackson": "shaded/parquet/com/fasterxml/jackson/databind/ObjectMapper",
    "jackson-core": "com/fasterxml/jackson/core/JsonFactory",
    "jackson-annotations": "com/fasterxml/jackson/annotation/JsonProperty",
    "jackson-databind": "com/fasterxml/jackson/databind/ObjectMapper",
    "jackson-datatype-jdk8": "com/fasterxml/jackson/datatype/jdk8/Jdk8Module",
    "jts-core": "org/locationtech/jts/geom/Geometry",
    "snappy-java": "org/xerial/snappy/Snappy",
    "RoaringBitmap": "org/roaringbitmap/RoaringBitmap",
    "caffeine": "com/github/benmanes/caffeine/cache/Caffeine",
    "failsafe": "dev/failsafe/Failsafe",
}
"""Artifacts by a class that each has."""

ADVICE = (
    "Set FLINK_DELTA_JARS to a folder (or a list) of io.delta:delta-flink with all that it needs at run time, or "
    "FLINK_DELTA_PACKAGE to its coordinates, where a registry has it: docs/flink.md says how."
)


def listed(setting: str) -> tuple[Path, ...]:
    """Return the jars that FLINK_DELTA_JARS names: those in a folder, or a list with commas or the system's path separator.

    Raises:
        FlinkUnavailable: a file or a folder of them is not there.
    """
    found = list[Path]()
    for part in filter(None, re.split(f"[,{re.escape(os.pathsep)}]", setting)):
        path = Path(part.strip()).expanduser().absolute()
        if not path.exists():
            raise FlinkUnavailable(f"FLINK_DELTA_JARS names {path}, which is not there. {ADVICE}")
        found += sorted(path.glob("*.jar")) if path.is_dir() else [path]
    return tuple(found)


def check_whole(jars: Iterable[Path], where: str) -> None:
    """Look whether everything that the connector needs is in these jars.

    Raises:
        FlinkUnavailable: something is not; it names each of them, and `where` they were looked for.
    """
    classes = set[str]()
    for jar in jars:
        try:
            with zipfile.ZipFile(jar) as archive:
                classes.update(archive.namelist())
        except (OSError, zipfile.BadZipFile) as error:
            raise FlinkUnavailable(f"{jar} cannot be read as a jar ({error}): download it again.") from error
    missing = tuple(name for name, known_by in NEEDED.items() if f"{known_by}.class" not in classes)
    if missing:
        raise FlinkUnavailable(
            f"Delta's connector for Flink is not whole in {where}: it lacks {', '.join(missing)}. No job was started, for "
            f"it could lose rows without an error. {ADVICE}",
            missing,
        )

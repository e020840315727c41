"""The jars of Delta's connector for Flink, and a check that the set is complete.

A missing jar is not always an error in Flink: without jts-core jobs finish, and their commits are empty. So the set is
checked before a job runs. Each artifact is known by one of its classes, because a file may have any name, and one file may
hold them all.
"""

import os
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from ratify_lakehouse.errors import FlinkUnavailable

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
    "parquet-encoding": "org/apache/parquet/column/values/bitpacking/BytePacker",
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
"""Each artifact, with one of its classes."""

ADVICE = (
    "Set FLINK_DELTA_JARS to a folder (or a list) of io.delta:delta-flink and its runtime dependencies, or "
    "FLINK_DELTA_PACKAGE to its coordinates, if a registry has it: see docs/flink.md."
)


def listed(setting: str) -> tuple[Path, ...]:
    """Return the jars that FLINK_DELTA_JARS names: those in a folder, or a list with commas or the system's path separator.

    Raises:
        FlinkUnavailable: one of the files or folders does not exist.
    """
    found = list[Path]()
    for part in filter(None, re.split(f"[,{re.escape(os.pathsep)}]", setting)):
        path = Path(part.strip()).expanduser().absolute()
        if not path.exists():
            raise FlinkUnavailable(f"FLINK_DELTA_JARS names {path}, which does not exist. {ADVICE}")
        found += sorted(path.glob("*.jar")) if path.is_dir() else [path]
    return tuple(found)


def check_complete(jars: Iterable[Path], where: str) -> None:
    """Check that these jars hold everything that the connector needs.

    Raises:
        FlinkUnavailable: something is missing; the error names each artifact, and `where` the jars came from.
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
            f"Delta's connector for Flink is incomplete in {where}: it lacks {', '.join(missing)}. No job was started, "
            f"because it could lose rows without an error. {ADVICE}",
            missing,
        )

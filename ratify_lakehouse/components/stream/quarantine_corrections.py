"""Corrected values for records in quarantine: read from a file, and written beside the records."""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import BadCorrection

_VIEW = "ratify_corrections"
_IS_RECORD = "target.topic = source.topic AND target.partition = source.partition AND target.offset = source.offset"


@dataclass(frozen=True)
class Correction:
    """The value that a record in quarantine should have had."""

    topic: str
    partition: int
    offset: int
    value: bytes


def read_corrections(path: Path) -> list[Correction]:
    """Read corrections, one JSON object a line: topic, partition, offset, and one of `value` and `value_base64`.

    `value` is the event as a JSON object, or any text.

    Raises:
        BadCorrection: a line is none of that; the message names it.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadCorrection(f"The corrections in {path} cannot be read: {error}.") from error
    return [_correction(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _correction(path: Path, number: int, line: str) -> Correction:
    try:
        given = json.loads(line)
        if "value_base64" in given:
            value = base64.b64decode(given["value_base64"], validate=True)
        else:
            value = (given["value"] if isinstance(given["value"], str) else json.dumps(given["value"])).encode()
        return Correction(str(given["topic"]), int(given["partition"]), int(given["offset"]), value)
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise BadCorrection(
            f"{path}, line {number} is not a correction ({type(error).__name__}: {error}). It has to be a JSON object with "
            "topic, partition, offset, and value or value_base64."
        ) from error


def write_corrections(spark: Spark, quarantine: TableDeclaration, corrections: Sequence[Correction]) -> None:
    """Write corrections to a quarantine, in one commit. A correction that was made before, even replayed, may be repeated.

    Raises:
        BadCorrection: a record is not in quarantine; no correction was made.
    """
    if not corrections:
        return
    table = spark.sql_name(quarantine)
    given = spark.session.createDataFrame(
        [astuple(correction) for correction in corrections], "topic string, partition int, offset bigint, value binary"
    )
    given.createOrReplaceTempView(_VIEW)
    known = f"{_IS_RECORD} AND (target.replayed_at IS NULL OR target.corrected <=> source.value)"
    missing = spark.rows(
        spark.sql(f"SELECT topic, partition, offset FROM {_VIEW} AS source ANTI JOIN {table} AS target ON {known}")
    )
    if missing:
        shown = ", ".join(f"{row['topic']}/{row['partition']}/{row['offset']}" for row in missing[:5])
        raise BadCorrection(f"{len(missing)} of {len(corrections)} corrections are for records not in quarantine: {shown}.")
    merge = (
        f"MERGE INTO {table} AS target USING {_VIEW} AS source ON {_IS_RECORD} "
        "WHEN MATCHED AND target.replayed_at IS NULL AND NOT (target.corrected <=> source.value) "
        "THEN UPDATE SET corrected = source.value"
    )
    spark.commit(spark.full_name(quarantine), lambda: spark.rows(spark.sql(merge)))

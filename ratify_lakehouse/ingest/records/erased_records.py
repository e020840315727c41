"""Records of erased subjects, which are not read again, whatever the source still has of them."""

from typing import TYPE_CHECKING

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.ingest.load.erased_subjects import ERASED_SUBJECTS, ErasureKey
from ratify_lakehouse.ingest.records.record_source import RECORD
from ratify_lakehouse.settings import Settings
from ratify_lakehouse.sql.spark_sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HASH = "ratify_hash_"


def without_erased(spark: Spark, table: TableDeclaration, records: "DataFrame") -> "DataFrame":
    """Leave out the records of subjects that were erased before this call.

    Args:
        spark: Reads the list of them.
        table: Says where a record has a subject.
        records: The columns `RECORD`; may be a stream.

    Raises:
        NotConfigured: subjects were erased, by a key that is not here.
        CatalogUnavailable, CatalogDenied.
    """
    if not (digests := _digests(spark, table)):
        return records
    inner, outer = ErasureKey.stored(Settings().home).pads
    # Frames, because literals would be in the plan, which Spark's UI shows.
    key = spark.session.createDataFrame([(inner, outer)], "inner_pad binary, outer_pad binary")
    listed = spark.session.createDataFrame([(digest,) for digest in digests], "digest string")
    names = [column.name for column in RECORD]
    ways = ((kind, way.spark_text("r")) for kind, given in table.subjects.items() for way in given)
    texts = [f"concat({literal(f'{kind}:')}, {text})" for kind, text in ways]
    hashes = [f"{_hmac(text)} AS {_HASH}{number}" for number, text in enumerate(texts)]
    columns = ", ".join([*(f"r.{identifier(name)}" for name in names), *hashes])
    left = spark.sql(f"SELECT {columns} FROM {{records}} AS r CROSS JOIN {{key}} AS k", records=records, key=key)
    for number in range(len(texts)):
        others = f"SELECT f.* FROM {{left}} AS f LEFT ANTI JOIN {{listed}} AS e ON f.{_HASH}{number} = e.digest"
        left = spark.sql(others, left=left, listed=listed)
    return left.select(*names)


def _digests(spark: Spark, table: TableDeclaration) -> list[str]:
    if not table.subjects:
        return []
    try:
        spark.catalog.version(spark.full_name(ERASED_SUBJECTS))
    except TableMissing:
        return []
    kinds = ", ".join(map(literal, sorted(table.subjects)))
    found = spark.rows(spark.query(f"SELECT digest, key_id FROM {spark.sql_name(ERASED_SUBJECTS)} WHERE kind IN ({kinds})"))
    if found:
        ErasureKey.stored(Settings().home).require({row["key_id"] for row in found})
    return [row["digest"] for row in found]


def _hmac(text: str) -> str:
    """Spark's expression for the keyed hash of a text, as `ErasureKey.digest` gives it."""
    return f"sha2(concat(k.outer_pad, unhex(sha2(concat(k.inner_pad, encode({text}, 'UTF-8')), 256))), 256)"

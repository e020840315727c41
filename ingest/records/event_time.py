"""When an event was, as its text says."""

_DATE = "LIKE '____-__-__%'"


def from_text(text: str) -> str:
    """Return the SQL (Spark's) for the time that `text` gives, itself SQL; NULL where it gives none.

    A number counts milliseconds since 1970, as Kafka Connect writes it; those outside of the years 1 to 9999, which would
    fail the query, give none. Nor does '10:00', which a cast alone would read as of today: no event's time depends on when
    it is read.
    """
    # A cast that fails costs more than reading the whole record: what looks like a date is not tried as a number.
    number = f"CASE WHEN {text} NOT {_DATE} THEN try_cast({text} AS BIGINT) END"
    return (
        f"CASE WHEN {number} BETWEEN -62135596800000 AND 253402300799999 THEN timestamp_millis({number}) "
        f"WHEN {text} {_DATE} THEN try_cast({text} AS TIMESTAMP) END"
    )

"""The time of an event, parsed from its text."""

_DATE = "LIKE '____-__-__%'"


def from_text(text: str) -> str:
    """Return the SQL (Spark's) for the time that `text` gives, itself SQL; NULL where it gives none.

    A number counts milliseconds since 1970, as Kafka Connect writes it. Numbers outside of the years 1 to 9999 would fail
    the query and give NULL. So does '10:00', which a cast alone would read as of today: an event's time must not depend on
    when it is read.
    """
    # A failed cast costs more than reading the whole record: what looks like a date is not cast to a number.
    number = f"CASE WHEN {text} NOT {_DATE} THEN try_cast({text} AS BIGINT) END"
    return (
        f"CASE WHEN {number} BETWEEN -62135596800000 AND 253402300799999 THEN timestamp_millis({number}) "
        f"WHEN {text} {_DATE} THEN try_cast({text} AS TIMESTAMP) END"
    )

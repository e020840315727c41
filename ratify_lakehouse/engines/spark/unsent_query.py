"""A query as a DataFrame that is sent to Spark only when its rows are used."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def unsent_query(session: "SparkSession", text: str, **frames: "DataFrame") -> "DataFrame":
    """Return the rows of a query in which `{name}` stands for the DataFrame given by that name.

    Over Spark Connect `SparkSession.sql` asks the server at once whether the text is a command, and the server analyses it
    then, and once more when its rows are used. This sends nothing before; an error in the query is raised when it is used.

    Args:
        session: Of Spark Connect, or a classic one, whose `sql` takes the query.
        text: A query. A command would run at each use.
        frames: Of the same session.
    """
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.plan import SQL, SubqueryAlias
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.connect.sql_formatter import SQLStringFormatter

    if not isinstance(session, SparkSession):
        return session.sql(text, **frames)  # pyright: ignore[reportUnknownMemberType, reportArgumentType]
    formatter = SQLStringFormatter(session)
    # As `sql` does it, which leaves a text without frames as it is.
    formatted = formatter.format(text, **frames) if frames else text
    views = [SubqueryAlias(frame._plan, name) for frame, name in formatter._temp_views]  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    return DataFrame(SQL(formatted, [], {}, views), session)

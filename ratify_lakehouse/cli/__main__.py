"""`python -m ratify_lakehouse.cli`: the command `ratify`, where it is not on the PATH."""

from ratify_lakehouse.cli.main import app

app()

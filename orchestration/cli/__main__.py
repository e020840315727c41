"""`python -m orchestration.cli`: the command `ratify`, where it is not on the PATH."""

from orchestration.cli.main import app

app()

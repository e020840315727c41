"""What can go wrong on the one machine that runs everything: each error says what to do next."""

from pathlib import Path


class EmbeddedError(Exception):
    """Base of every error that this package raises on purpose."""


class UnsuitableJava(EmbeddedError):
    """The Java that was asked for is missing, is not a Java, or is of a release that Spark does not run on."""


class JarsUnavailable(EmbeddedError):
    """A jar could not be downloaded."""


class ConnectorBuildFailed(EmbeddedError):
    """The Scala compiler refused the Spark connector."""


class PortTaken(EmbeddedError):
    """The port that was asked for is in use by another process."""


class StackRunning(EmbeddedError):
    """A stack holds this home already."""


class StackFailed(EmbeddedError):
    """The stack ended, or did not come up in time."""


class ProcessFailed(EmbeddedError):
    """A child process died, or did not answer in time.

    Carries the end of its log, because the reason stands there and nowhere else.
    """

    def __init__(self, name: str, what: str, log: Path) -> None:
        self.log = log
        super().__init__(f"{name} {what}. The end of its log, {log}:\n{tail(log)}")


def tail(log: Path, lines: int = 20) -> str:
    """Return the last lines of a log file; of one that does not exist, a sentence that says so."""
    try:
        text = log.read_text(errors="replace")
    except FileNotFoundError:
        return "(no log was written)"
    return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"

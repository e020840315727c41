"""Errors of the servers on one machine: each message names the next step."""

from pathlib import Path


class EmbeddedError(Exception):
    """Base of every error that this package raises on purpose."""


class UnsuitableJava(EmbeddedError):
    """The configured Java is missing, does not run, or is a release that Spark does not support."""


class JarsUnavailable(EmbeddedError):
    """A jar could not be downloaded."""


class ConnectorBuildFailed(EmbeddedError):
    """The Scala compiler refused the Spark connector."""


class PortTaken(EmbeddedError):
    """Another process uses the requested port."""


class StackRunning(EmbeddedError):
    """A stack holds this home already."""


class StackFailed(EmbeddedError):
    """The stack ended, or did not start in time."""


class ProcessFailed(EmbeddedError):
    """A child process died, or did not answer in time.

    The message carries the end of its log, because only the log has the reason.
    """

    def __init__(self, name: str, what: str, log: Path) -> None:
        self.log = log
        super().__init__(f"{name} {what}. The end of its log, {log}:\n{tail(log)}")


def tail(log: Path, lines: int = 20) -> str:
    """Return the last lines of a log file, or a sentence for one that is missing or empty."""
    try:
        text = log.read_text(errors="replace")
    except FileNotFoundError:
        return "(no log was written)"
    return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"

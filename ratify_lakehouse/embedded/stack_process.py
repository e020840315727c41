"""The supervisor as a program, which holds a stack in the foreground until Ctrl-C.

It is called as `python -m ratify_lakehouse.embedded.stack_process CONFIG.json`. The file holds a `StackConfig`. With
`--exit-with-stdin` the program also stops when standard input ends.
"""

import argparse
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from ratify_lakehouse.embedded.child_process import call_at_end_of_input
from ratify_lakehouse.embedded.embedded_errors import EmbeddedError, StackRunning
from ratify_lakehouse.embedded.stack_state import EXIT_RUNNING, StackConfig
from ratify_lakehouse.embedded.supervisor import Stopped, Supervisor


def main() -> int:
    """Hold the stack; return 0 after a stop, 3 when another process holds the home, 1 when a server failed."""
    parser = argparse.ArgumentParser(prog="python -m ratify_lakehouse.embedded.stack_process", description=__doc__)
    parser.add_argument("config", type=Path, help="JSON file of the stack's configuration")
    parser.add_argument("--exit-with-stdin", action="store_true", help="stop when standard input ends")
    given = parser.parse_args()
    config = StackConfig.model_validate_json(given.config.read_text())
    try:
        _raise_stopped_on_signals(on_stdin_end=given.exit_with_stdin)
        Supervisor(config, _print).run(os.getpid())
    except Stopped:
        return 0
    except StackRunning as error:
        _print(str(error))
        return EXIT_RUNNING
    except EmbeddedError as error:
        _print(str(error))
        return 1
    return 0


def _raise_stopped_on_signals(*, on_stdin_end: bool) -> None:
    """Make SIGTERM and SIGINT, and on request the end of standard input, raise `Stopped` in the main thread."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise Stopped

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if on_stdin_end:
        call_at_end_of_input(lambda: os.kill(os.getpid(), signal.SIGTERM))


def _print(message: str) -> None:
    sys.stdout.write(f"{message}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

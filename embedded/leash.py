"""Run any program on a leash: it ends, with all that it started, when this process's standard input does.

`python -m embedded.leash COMMAND [ARGUMENT …]`, started as a `Child`, is for programs that do not watch their own input.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

_GRACE_S = 20


def main() -> int:
    """Return the program's exit code; 0 where it was told to stop."""
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    told = threading.Event()

    def stop(*_: object) -> None:
        told.set()
        process.terminate()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    threading.Thread(target=_at_end_of_input, args=(stop,), daemon=True).start()
    while process.poll() is None and not told.is_set():
        told.wait(0.2)
    try:
        code = process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        code = -signal.SIGKILL
    # What the program left behind is in the session that this process leads.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(os.getpgid(0), signal.SIGTERM)
    return 0 if told.is_set() else code


def _at_end_of_input(stop: Callable[[], None]) -> None:
    sys.stdin.buffer.read()
    stop()


if __name__ == "__main__":
    sys.exit(main())

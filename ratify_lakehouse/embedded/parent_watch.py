"""Run any program so that it ends, with all that it started, when this process's standard input does.

`python -m ratify_lakehouse.embedded.parent_watch COMMAND [ARGUMENT …]`, started as a `Child`, is for programs that do not
watch their input.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import psutil

from ratify_lakehouse.embedded.child_process import call_at_end_of_input

# Ctrl-C first, which programs take as "stop what you started, then yourself"; then what they cannot ignore.
_ENDINGS = ((signal.SIGINT, 10.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 0.0))


def main() -> int:
    """Return the program's exit code, as a shell does (128 and the signal's number); 0 where it was stopped."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopped.set())
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    call_at_end_of_input(stopped.set)
    while process.poll() is None and not stopped.wait(0.2):
        pass
    code = process.poll()
    _end_group()
    if code is None:
        return 0
    return code if code >= 0 else 128 - code


def _end_group() -> None:
    """End the other processes of this one's group: the program and what it started."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    group = os.getpgid(0)
    for number, grace in _ENDINGS:
        others = [process for process in psutil.process_iter() if _is_other(process, group)]
        if not others:
            return
        for process in others:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        psutil.wait_procs(others, timeout=grace)


def _is_other(process: psutil.Process, group: int) -> bool:
    try:
        return process.pid != os.getpid() and os.getpgid(process.pid) == group
    except (ProcessLookupError, PermissionError):
        return False


if __name__ == "__main__":
    sys.exit(main())

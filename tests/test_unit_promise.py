"""A unit test that starts a server or a process fails; this module has some."""

import socket
import subprocess
import sys

import pytest

REFUSED = r"test_unit_promise\.py::test_a_unit_test_starts_no_.* pytest\.mark\.server"


def test_a_unit_test_starts_no_server() -> None:
    with socket.socket() as one, pytest.raises(pytest.fail.Exception, match=REFUSED):
        one.bind(("127.0.0.1", 0))


def test_a_unit_test_starts_no_process() -> None:
    with pytest.raises(pytest.fail.Exception, match=REFUSED):
        subprocess.run([sys.executable, "-c", ""], check=True)


def test_a_unit_test_may_ask_git() -> None:
    assert subprocess.run(["git", "--version"], capture_output=True, check=True).stdout


@pytest.mark.server
def test_another_test_starts_what_it_wants() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))

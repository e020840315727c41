"""The jars: stamps, the errors of Ivy, and that a second process waits for the first."""

import errno
import fcntl
import json
import os
import threading
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from ratify_lakehouse.embedded import file_locks, jvm_jars
from ratify_lakehouse.embedded.embedded_errors import JarsUnavailable
from ratify_lakehouse.embedded.java_runtime import Java, choose_java

IVY_FAKE = """#!/bin/sh
# Stands for `java … org.apache.ivy.Main … -retrieve <pattern>`: creates one jar, and counts its runs.
for last; do :; done
directory=$(dirname "$last")
mkdir -p "$directory"
printf 'jar' > "$directory/delta-1.0.jar"
echo run >> "{runs}"
echo "	[SUCCESSFUL ] io.delta#delta;1.0!delta.jar (1ms)"
{ending}
"""

UNRESOLVED = """
		::::::::::::::::::::::::::::::::::::::::::::::
		::          UNRESOLVED DEPENDENCIES         ::
		::::::::::::::::::::::::::::::::::::::::::::::
		:: io.delta#delta-spark_4.2_2.13;4.4.0: not found
		::              FAILED DOWNLOADS            ::
		:: io.delta#delta-storage;4.4.0!delta-storage.jar
"""


def fake(tmp_path: Path, ending: str = "exit 0") -> tuple[Java, Path]:
    runs = tmp_path / "runs"
    launcher = tmp_path / "fake" / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(IVY_FAKE.format(runs=runs, ending=ending))
    launcher.chmod(0o755)
    return Java(tmp_path / "fake", 17, "test"), runs


def test_a_set_is_resolved_once_and_reports_its_progress(tmp_path: Path) -> None:
    java, runs = fake(tmp_path)
    reported: list[str] = []
    first = jvm_jars.resolve(("spark",), tmp_path / "jars", java, reported.append)
    assert first == jvm_jars.resolve(("spark",), tmp_path / "jars", java, reported.append)
    assert [jar.name for jar in first] == ["delta-1.0.jar"]
    assert runs.read_text() == "run\n"
    assert "spark jars: 1 downloaded, delta.jar" in reported


@pytest.mark.parametrize("damage", ["cut", "lost", "no stamp", "broken stamp"])
def test_a_damaged_set_is_resolved_again(tmp_path: Path, damage: str) -> None:
    java, runs = fake(tmp_path)
    (jar,) = jvm_jars.resolve(("spark",), tmp_path / "jars", java, lambda _: None)
    stamp = jar.parent.parent / "spark.json"
    match damage:
        case "cut":
            jar.write_text("j")
        case "lost":
            jar.unlink()
        case "no stamp":
            stamp.unlink()
        case _:
            stamp.write_text(json.dumps({"delta-1.0.jar": 3})[:-4])
    assert jvm_jars.resolve(("spark",), tmp_path / "jars", java, lambda _: None)[0].read_text() == "jar"
    assert runs.read_text() == "run\nrun\n"


def test_a_failed_resolution_names_the_artifacts_and_leaves_no_stamp(tmp_path: Path) -> None:
    java, _ = fake(tmp_path, f"cat <<'END'\n{UNRESOLVED}END\nexit 1")
    with pytest.raises(JarsUnavailable, match=r"io\.delta:delta-spark_4\.2_2\.13:4\.4\.0, io\.delta:delta-storage:4"):
        jvm_jars.resolve(("spark",), tmp_path / "jars", java, lambda _: None)
    assert not list((tmp_path / "jars").rglob("spark.json"))


def test_ivy_failing_for_another_reason_is_not_taken_for_a_download(tmp_path: Path) -> None:
    java, _ = fake(tmp_path, "echo 'impossible to parse the settings'; exit 1")
    with pytest.raises(JarsUnavailable, match=r"Ivy could not resolve the spark jars(?s:.*)impossible to parse"):
        jvm_jars.resolve(("spark",), tmp_path / "jars", java, lambda _: None)


def test_a_second_process_waits_for_the_first(tmp_path: Path) -> None:
    java, runs = fake(tmp_path)
    (tmp_path / "jars").mkdir()
    waiting = threading.Event()
    with (tmp_path / "jars" / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def progress(message: str) -> None:
            if "waiting" in message:
                waiting.set()

        resolving = threading.Thread(target=jvm_jars.resolve, args=(("spark",), tmp_path / "jars", java, progress))
        resolving.start()
        assert waiting.wait(10)
        assert not runs.exists()
    resolving.join(10)
    assert runs.read_text() == "run\n"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (errno.EROFS, r"cannot be written to .*jars \(Read-only file system\)\. .*RATIFY_CACHE"),
        (errno.ENOSPC, r"no room for the JVM jars in .*jars \(No space left on device\)\. .*RATIFY_CACHE"),
    ],
)
def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int, said: str
) -> None:
    java, _ = fake(tmp_path)
    jars = jvm_jars.resolve(("spark",), tmp_path / "jars", java, lambda _: None)

    def refuse(path: Path) -> None:
        raise OSError(fault, os.strerror(fault), str(path))

    monkeypatch.setattr(file_locks, "file_lock", refuse)
    with pytest.raises(JarsUnavailable, match=said):
        jvm_jars.resolve(("kafka",), tmp_path / "jars", java, lambda _: None)
    assert jvm_jars.resolve(("spark",), tmp_path / "jars", java, lambda _: None) == jars, "what is there needs no lock"


def test_a_cache_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    java, _ = fake(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(JarsUnavailable, match=r"cannot be written to .*file/jars"):
        jvm_jars.resolve(("spark",), tmp_path / "file" / "jars", java, lambda _: None)


def test_a_disk_that_is_full_while_ivy_downloads_is_named(tmp_path: Path) -> None:
    java, _ = fake(tmp_path, "echo 'java.io.IOException: No space left on device'; exit 1")
    with pytest.raises(JarsUnavailable, match="no room for the JVM jars"):
        jvm_jars.resolve(("spark",), tmp_path / "jars", java, lambda _: None)


def test_an_unknown_set_is_refused(tmp_path: Path) -> None:
    java, _ = fake(tmp_path)
    with pytest.raises(JarsUnavailable, match="choose from spark, kafka, s3"):
        jvm_jars.resolve(("flink",), tmp_path / "jars", java, lambda _: None)


def test_a_published_connector_gets_a_directory_of_its_own() -> None:
    published = jvm_jars.lock("io.unitycatalog:unitycatalog-spark_2.13:0.6.0")
    assert published.digest != jvm_jars.lock().digest
    first = ET.fromstring(published.ivy_xml).find("dependencies/dependency")  # noqa: S314 - our own file
    assert first is not None
    assert first.attrib == {
        "org": "io.unitycatalog",
        "name": "unitycatalog-spark_2.13",
        "rev": "0.6.0",
        "conf": "spark->default",
    }


def test_coordinates_of_another_form_are_refused() -> None:
    with pytest.raises(JarsUnavailable, match="organisation:module:revision"):
        jvm_jars.lock("unitycatalog-spark")


@pytest.mark.stack
def test_offline_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9")
    java = choose_java(None, os.environ)
    with pytest.raises(JarsUnavailable, match=r"could not download io\.delta:delta-spark_4\.2_2\.13:4\.4\.0"):
        jvm_jars.resolve(("spark",), tmp_path, java, lambda _: None)


def test_a_connector_for_flink_is_added_to_flink_s_lock_alone() -> None:
    given = jvm_jars.lock("io.delta:delta-flink:4.4.0", jvm_jars.SETS["flink-delta"])
    added = ET.fromstring(given.ivy_xml).find("dependencies/dependency")  # noqa: S314 - our own file
    assert added is not None
    assert added.attrib == {"org": "io.delta", "name": "delta-flink", "rev": "4.4.0", "conf": "flink-delta->default"}
    assert len({given.digest, jvm_jars.lock(file=jvm_jars.SETS["flink-client"]).digest, jvm_jars.lock().digest}) == 3

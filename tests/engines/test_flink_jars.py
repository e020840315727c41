"""The jars of Delta's connector for Flink: a set is complete, or each missing artifact is named."""

import os
import zipfile
from pathlib import Path

import pytest

from ratify_lakehouse.embedded.jvm_jars import pyspark_jars, read_stamp
from ratify_lakehouse.engines.flink.flink_jars import NEEDED, check_complete, listed
from ratify_lakehouse.errors import FlinkUnavailable


def jar(path: Path, *artifacts: str) -> Path:
    """A jar that has the classes by which those artifacts are known."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name in artifacts:
            archive.writestr(f"{NEEDED[name]}.class", b"")
    return path


def test_a_complete_set_is_accepted_in_any_files(tmp_path: Path) -> None:
    check_complete([jar(tmp_path / f"{number}.jar", name) for number, name in enumerate(NEEDED)], "here")
    check_complete([jar(tmp_path / "assembly.jar", *NEEDED)], "here")


@pytest.mark.parametrize("lost", [["jts-core"], ["delta-flink", "caffeine"], list(NEEDED)])
def test_every_missing_artifact_is_named(tmp_path: Path, lost: list[str]) -> None:
    jars = [jar(tmp_path / f"{name}.jar", name) for name in NEEDED if name not in lost]
    with pytest.raises(FlinkUnavailable) as error:
        check_complete(jars, "FLINK_DELTA_JARS (there)")
    assert error.value.missing == tuple(lost)
    assert f"FLINK_DELTA_JARS (there): it lacks {', '.join(lost)}. No job was started" in str(error.value)
    assert "docs/flink.md" in str(error.value)


# Its jars are those of the set-up, which unit tests do without.
@pytest.mark.server
def test_real_jars_are_known_by_their_classes(jars_dir: Path) -> None:
    """What Spark has of them, and pyspark: all that the registries here can give."""
    spark = next(found for stamp in jars_dir.glob("*/spark.json") if (found := read_stamp(stamp.parent, "spark")))
    with pytest.raises(FlinkUnavailable) as error:
        check_complete([*spark, *pyspark_jars().glob("*.jar")], "there")
    assert error.value.missing == ("delta-flink", "caffeine", "failsafe")


def test_jars_are_taken_from_folders_and_from_lists(tmp_path: Path) -> None:
    one, two = jar(tmp_path / "a" / "1.jar"), jar(tmp_path / "a" / "2.jar")
    three = jar(tmp_path / "3.jar")
    assert listed(str(tmp_path / "a")) == (one, two)
    assert listed(f"{three}, {one}") == listed(f"{three}{os.pathsep}{one}") == (three, one)
    with pytest.raises(FlinkUnavailable, match=r"names .*/nowhere, which does not exist"):
        listed(f"{one},{tmp_path / 'nowhere'}")


def test_a_cut_jar_is_named(tmp_path: Path) -> None:
    whole = jar(tmp_path / "cut.jar", *NEEDED)
    whole.write_bytes(whole.read_bytes()[:100])
    with pytest.raises(FlinkUnavailable, match=r"cut\.jar cannot be read as a jar .*download it again"):
        check_complete([whole], "there")

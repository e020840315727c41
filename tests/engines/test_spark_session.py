"""What a classic session is configured with; opening one is in test_spark_classic.py."""

from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.engines.spark.spark_errors import translated
from ratify_lakehouse.engines.spark.spark_session import classic_conf, delta_package
from ratify_lakehouse.errors import CatalogUnavailable, CommitConflict

IVY = Path(__file__).parents[2] / "ratify_lakehouse" / "embedded" / "ivy.xml"
CATALOG = UnityCatalog(host="http://localhost:1", name="lake", token="t0ken")


def test_deltas_jars_are_of_the_release_of_its_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "spark.jars.packages" not in classic_conf(CATALOG)
    monkeypatch.setenv("UNITY_SPARK_PACKAGE", "io.unitycatalog:unitycatalog-spark_2.13:0.5.0")
    conf = classic_conf(CATALOG)
    assert conf["spark.jars.packages"].split(",") == [delta_package(), "io.unitycatalog:unitycatalog-spark_2.13:0.5.0"]
    assert delta_package().rpartition(":")[2] == metadata.version("delta-spark")
    locked = [item.attrib for item in ET.parse(IVY).iter("dependency") if item.get("org") == "io.delta"]  # noqa: S314
    assert [f"io.delta:{item['name']}:{item['rev']}" for item in locked] == [delta_package()]
    assert "t0ken" not in str(conf)


def test_deltas_typed_exceptions_are_conflicts_whatever_their_text_is() -> None:
    from delta.exceptions.base import ConcurrentAppendException, MetadataChangedException

    for kind in (ConcurrentAppendException, MetadataChangedException):
        assert type(translated(kind("files were added"), "sc://localhost")) is CommitConflict
    unknown = ValueError("files were added")
    assert translated(unknown, "sc://localhost") is unknown


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_a_catalog_that_does_not_answer_spark_is_unavailable(status: int) -> None:
    error = Exception(f"(java.io.IOException) Failed to load table main.bronze.t (HTTP {status}): null")
    assert type(translated(error, "sc://localhost")) is CatalogUnavailable


def test_a_table_that_the_catalog_does_not_have_is_another_error() -> None:
    error = Exception("(java.io.IOException) Failed to load table main.bronze.t (HTTP 404): NOT_FOUND")
    assert translated(error, "sc://localhost") is error

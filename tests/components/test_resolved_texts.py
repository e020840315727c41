"""Texts of a declaration: each is resolved as Dagster resolves it, with templates and without."""

import dagster as dg
import pytest

from ratify_lakehouse.components.declared_component import ResolvedTexts

TEXTS = [
    "a",
    "1",
    "0.5",
    "None",
    "true",
    "[1, 2]",
    "'q'",
    " 1",
    "a # b",
    "a\nb",
    "a\n",
    "\n",
    "a\r\nb",
    "",
    "ü",
    "}}",
    "(" * 300,
]
TEMPLATES = ["{{ x }}", "{{ x }}5", "a {{ x }}", "{# no #}a", "{% if x %}b{% endif %}", "{"]


@pytest.mark.parametrize("text", [*TEXTS, *TEMPLATES])
def test_a_text_is_what_dagster_makes_of_it(text: str) -> None:
    of_dagster = dg.ResolutionContext(scope={"x": 3})
    ours = ResolvedTexts(scope={"x": 3}).at_path("attributes").with_scope(y=4)
    assert repr(ours.resolve_value({"f": [text]})) == repr(of_dagster.resolve_value({"f": [text]}))


def test_a_name_that_is_not_in_scope_is_refused() -> None:
    with pytest.raises(Exception, match="'other' not found in scope"):
        ResolvedTexts(scope={}).resolve_value("{{ other }}")


def test_a_text_alone_needs_no_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jinja2.nativetypes.NativeTemplate", None)
    assert ResolvedTexts(scope={}).resolve_value(["Orders of a day", "12"]) == ["Orders of a day", 12]

"""The reference of the kinds of tables is that of their schemas."""

from pydantic import BaseModel, Field

import ratify_lakehouse
from ratify_lakehouse.components.kinds_reference import REFERENCE, _attributes, kinds, reference


def test_the_reference_in_the_docs_is_current() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == reference(), (
        "run: .venv/bin/python -m ratify_lakehouse.components.kinds_reference"
    )


def test_every_kind_and_every_attribute_is_in_it() -> None:
    text = reference()
    assert {kind.__name__ for kind in kinds()} == set(ratify_lakehouse.KINDS)
    for kind in kinds():
        section = text.split(f"## ratify_lakehouse.{kind.__name__}\n")[1].split("\n## ")[0]
        assert [name for name in kind.model_fields if f"| `{name}` |" not in section] == []


def test_every_attribute_is_described() -> None:
    undescribed = [line for line in reference().splitlines() if line.startswith("| `") and line.endswith("|  |")]
    assert undescribed == []


def test_a_default_that_has_the_sign_of_a_cell_stays_in_its_cell() -> None:
    class Model(BaseModel):
        """One attribute."""

        sign: str = Field(default="|", description="A | or\nanother")

    (_, row, _) = _attributes(Model)
    assert row == "| `sign` | text | `\\|` | A \\| or another |"

"""A project of its own, which declares one table of landed files: `bronze.products`, with a code and a name."""

from pathlib import Path

from ratify_lakehouse.components.landed_files_component import LandedFiles

_ATTRIBUTES = """
description: Products, as they came
pattern: reference/products*
csv: {exact_header: true}
columns: [{name: code, type: string}, {name: name, type: string}]
"""
_PLACE = Path("assets", "bronze", "products")

_component = LandedFiles.resolve_from_yaml(_ATTRIBUTES)
_component.place(_PLACE)
PRODUCTS = _component.source
"""Its files."""


def write_project(root: Path) -> None:
    """Write the project: within the checkout, too, a process finds its `assets` first if PYTHONPATH begins with `root`."""
    folder = root / _PLACE
    folder.mkdir(parents=True)
    (root / "assets" / "__init__.py").touch()
    (root / "pyproject.toml").write_text('[tool.dg.project]\nroot_module = "assets"\ndefs_module = "assets"\n')
    indented = _ATTRIBUTES.replace("\n", "\n  ").rstrip()
    (folder / "defs.yaml").write_text(f"type: ratify_lakehouse.LandedFiles\nattributes:{indented}\n")

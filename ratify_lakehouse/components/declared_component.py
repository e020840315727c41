"""What all components share: each is declared by a `defs.yaml` in a folder of its own."""

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import dagster as dg
from pydantic import BaseModel, Field, PrivateAttr, ValidationError

from ratify_lakehouse.components.declaration_places import field_with, located
from ratify_lakehouse.components.personal_columns import MarkedTable, PersonalColumns
from ratify_lakehouse.errors import UnsafeDeclaration

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class ResolvedTexts(dg.ResolutionContext):
    """Resolves the values of a declaration as Dagster does, without a compiled template for each text that has none."""

    def _resolve_inner_value(self, val: Any) -> Any:
        # Delimiters of templates begin with a brace, and a template has other line ends than its text.
        if not isinstance(val, str) or not val or "{" in val or "\r" in val or val.endswith("\n"):
            return super()._resolve_inner_value(val)
        from jinja2.nativetypes import native_concat

        return native_concat([val])


class DeclaredComponent(dg.Component, dg.Model, dg.Resolvable):
    """Assets that a folder with a `defs.yaml` declares."""

    description: str = Field(description="What a row represents, for the catalog and the UI")
    owner: str = Field(default="data-platform", description="Team responsible for it")
    tags: dict[str, str] = Field(default={}, description="Tags of the asset")

    _folder: Path = PrivateAttr()
    _personal: PersonalColumns = PrivateAttr(default_factory=PersonalColumns)

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Load the component from its `defs.yaml`, and remember its folder, which names it."""
        declaration = Path(context.path) / "defs.yaml"
        try:
            component = super().load(attributes, replace(context, resolution_context=_quick(context.resolution_context)))
        except Exception as error:
            # Dagster names the place of all mistakes but those in the values of enumerations.
            if (fault := _validation_error(error)) is None:
                raise
            name, value = str(fault["loc"][-1]), fault["input"]
            with located(declaration):
                raise UnsafeDeclaration(f"{fault['msg']}, not {value!r}.", *field_with(declaration, name, value)) from error
        component.place(declaration.parent)
        return component

    def place(self, folder: Path) -> None:
        """Give the component its folder, as `load` does."""
        self._folder = folder

    @classmethod
    def get_code_references_for_yaml(
        cls, yaml_path: Path, source_position: Any, context: dg.ComponentLoadContext
    ) -> Sequence[dg.LocalFileCodeReference | dg.UrlCodeReference]:
        """Return where the asset's page finds its code: `defs.yaml`, and the queries beside it."""
        # The classes are in beta, and every command would begin with a warning of that.
        with warnings.catch_warnings(action="ignore", category=dg.BetaWarning):
            queries = [dg.LocalFileCodeReference(file_path=str(file)) for file in sorted(yaml_path.parent.glob("*.sql"))]
        return [*super().get_code_references_for_yaml(yaml_path, source_position, context), *queries]

    @property
    def personal(self) -> PersonalColumns:
        """The personal data that is known in the tables of the project; of a component alone, none is."""
        return self._personal

    def place_among(self, personal: PersonalColumns) -> None:
        """Give the component what is known of personal data in all tables of the project."""
        self._personal = personal

    def marked_tables(self) -> Iterable[MarkedTable]:
        """Return the tables that it writes, as far as their declaration tells which columns have personal data."""
        return ()

    @property
    def folder(self) -> Path:
        """The folder with `defs.yaml` in it."""
        return self._folder

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the assets and their checks.

        Raises:
            InvalidDeclaration: the declaration is wrong; the error names the file, the line and the field.
        """
        with located(self.folder / "defs.yaml"):
            return self.declared_defs()

    @abstractmethod
    def declared_defs(self) -> dg.Definitions:
        """Return the assets and their checks.

        Raises:
            UnsafeDeclaration: the declaration is wrong.
        """


def _validation_error(error: BaseException | None) -> "ErrorDetails | None":
    while error and not isinstance(error, ValidationError):
        error = error.__cause__ or error.__context__
    return error.errors()[0] if error else None


def _quick(context: dg.ResolutionContext) -> ResolvedTexts:
    return ResolvedTexts(
        scope=context.scope, path=context.path, source_position_tree=context.source_position_tree, stash=context.stash
    )

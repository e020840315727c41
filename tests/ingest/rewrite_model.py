"""A plain model of landed files that an erasure rewrites: what their bytes count as, and what bronze holds then.

It knows nothing of tables, logs or hashes. A content is its names in their order; the bytes without those of the subject
may be another content, which may land by itself, too.
"""

from collections import Counter
from dataclasses import dataclass, field

from ratify_lakehouse.ingest.file_source import Rewrite
from tests.ingest.ledger_model import LandedVersion, ModelTable

SUBJECT = "ann"
Content = tuple[str, ...]


def others(content: Content) -> Content:
    """The names that are not the subject's."""
    return tuple(name for name in content if name != SUBJECT)


@dataclass(frozen=True)
class ModelRewrite:
    """Bytes that were made of a file, and the content that they count as. `version`: of the table at that time."""

    path: str
    made: str
    landed: str
    version: int


@dataclass
class RewriteModel:
    """A landing zone, its bronze table, and the rewrites.

    Attributes:
        files: The bytes at each path, by the name of the content that they are, and a stamp.
        loaded: The contents that were ever loaded.
    """

    table: ModelTable
    files: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    rewrites: list[ModelRewrite] = field(default_factory=list[ModelRewrite])
    loaded: set[str] = field(default_factory=set[str])

    @classmethod
    def of(cls, policy: Rewrite) -> "RewriteModel":
        return cls(ModelTable(policy))

    def landed_content(self, path: str, content: str, rank: dict[str, str]) -> str:
        """What the bytes of a file count as. `rank`: what decides where nothing else does."""
        made = [each for each in self.rewrites if each.made == content]
        of_path = [each for each in made if each.path == path]
        if of_path:
            return max(of_path, key=lambda each: (each.version, each.landed in self.table.held, rank[each.landed])).landed
        if not made or content in self.loaded:
            return content
        return max(made, key=lambda each: (each.landed in self.table.held, rank[each.landed])).landed

    def version(self, path: str, rank: dict[str, str]) -> LandedVersion:
        content, stamp = self.files[path]
        return LandedVersion(path, self.landed_content(path, content, rank), stamp)

    def rows(self) -> Counter[tuple[str, str]]:
        """Rows of others in bronze, by path and name: each content's once, whatever was rewritten."""
        return Counter((path, name) for content, path in self.table.held.items() for name in others(parsed(content)))


def parsed(content: str) -> Content:
    return tuple(content.split())

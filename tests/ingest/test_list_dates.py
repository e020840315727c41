"""The date of a full list, as it is written in the name of its file."""

import datetime as dt

import pytest

from ratify_lakehouse.errors import BadFile
from ratify_lakehouse.ingest.list_dates import ListDate

LANDED = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("%Y-%m-%d", "shop/customers_2024-01-31.csv"),
        ("%Y-%m-%d", "2024-02-01/customers_2024-01-31.csv"),
        ("%Y-%m-%d", "2024-01-31/customers_2024-13-31.csv"),
        ("%d.%m.%Y", "Kunden 31.01.2024.csv"),
        ("%Y%m%d", "customers_20240131120000.csv.gz"),
        ("list-%Y%m%d", "list-20240131-of-20240201.csv"),
    ],
)
def test_it_is_found(name: str, path: str) -> None:
    assert ListDate(name).of_file(path, LANDED) == dt.date(2024, 1, 31)


@pytest.mark.parametrize("path", ["customers.csv", "1120240131.csv", "20240230.csv"])
def test_a_name_without_one_is_no_list(path: str) -> None:
    with pytest.raises(BadFile, match="its name has no date like %Y%m%d"):
        ListDate("%Y%m%d").of_file(path, LANDED)


def test_the_landing_has_a_day_in_utc() -> None:
    late = dt.datetime(2024, 1, 31, 23, tzinfo=dt.timezone(dt.timedelta(hours=-2)))
    assert ListDate(landing=True).of_file("a.csv", late) == dt.date(2024, 2, 1)

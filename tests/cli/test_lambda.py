"""The Lambda function as Lambda runs it: a process that may write to /tmp alone, in 512 MiB; and its image's recipe."""

import gzip
import json
import subprocess
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
import zstandard

from ratify_lakehouse.definitions import aws_lambda
from ratify_lakehouse.definitions.aws_lambda import NotAllLoaded, NotAnS3Event, handler
from ratify_lakehouse.errors import CatalogUnavailable
from tests.bare_environment import build_wheel, environment_with
from tests.cli.conftest import LoadTarget
from tests.cli.ratify_command import environment
from tests.definitions.test_lambda_image import installed_extras
from tests.embedded.catalog.s3_server import BUCKET, MotoS3, moto_s3
from tests.ingest.corpus_case import parquet_file

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "deploy" / "lambda"
HEADER = "code,name\n"
MEMORY_MIB = 512

# Runs the handler on the events in argv, one after the other in one process, as a warm function does.
RUNTIME = textwrap.dedent(
    """
    import json, sys, time

    class Context:
        memory_limit_in_mb = "512"  # Lambda gives a string.

        def __init__(self, seconds):
            self.end = time.monotonic() + seconds

        def get_remaining_time_in_millis(self):
            return int(1000 * (self.end - time.monotonic()))

    from ratify_lakehouse.definitions.aws_lambda import handler

    for line in sys.argv[1:]:
        print(json.dumps(handler(json.loads(line), Context(60))), flush=True)
    assert "ratify_lakehouse.embedded" not in sys.modules
    # Not ru_maxrss, which begins with what the process had that this one was forked from.
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    peak = int(status["VmHWM"].split()[0]) // 1024
    print(json.dumps({"peak MiB": peak}))
    """
)

# In $1, the image's environment, which the test has in /tmp, as the project in $2. As in Lambda, there is no shared memory.
LAMBDA_MOUNTS = """
mount --make-rprivate /
mount --bind /tmp /tmp
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount -t tmpfs -o ro none /dev/shm
mount -o remount,bind,ro /
cd "$2"
for folder in / /var "$1" /dev/shm; do
    if touch "$folder/written" 2>/dev/null; then echo "$folder is not read-only" >&2; exit 1; fi
done
shift 2
exec "$@"
"""


def put_event(*keys: str, bucket: str = BUCKET) -> dict[str, Any]:
    """What S3 sends."""
    return {
        "Records": [
            {
                "eventVersion": "2.1",
                "eventSource": "aws:s3",
                "eventName": "ObjectCreated:Put",
                "s3": {"bucket": {"name": bucket}, "object": {"key": quote_plus(key, safe="/"), "size": 1, "eTag": "0"}},
            }
            for key in keys
        ]
    }


def sqs_event(**bodies: object) -> dict[str, Any]:
    """Messages as Lambda takes them from a queue, by their ids."""
    return {
        "Records": [
            {"messageId": name, "eventSource": "aws:sqs", "body": body if isinstance(body, str) else json.dumps(body)}
            for name, body in bodies.items()
        ]
    }


def fates(answer: dict[str, Any]) -> dict[str, str]:
    return {file["file"]: file["status"] for file in answer["files"]}


@dataclass(frozen=True)
class Image:
    """The environment that the image has, with the wheel and its requirements."""

    environment: Path

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image's environment, installed by the steps of its recipe."""
    folder = tmp_path_factory.mktemp("image")
    made = Image(folder / "environment")
    environment_with(build_wheel(folder), made.environment, *installed_extras())
    # As pip does in the image: the function's own file system is read-only.
    compile_all = [made.python, "-m", "compileall", "-q", "-x", r"/embedded/", made.environment / "lib"]
    subprocess.run(compile_all, check=True, timeout=120, capture_output=True)
    subprocess.run([made.python, IMAGE / "check.py"], check=True, timeout=120)
    return made


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[MotoS3]:
    with moto_s3(monkeypatch) as started:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", started.url)
        yield started


def put(s3: MotoS3, **files: str) -> None:
    """Objects `reference/products-<name>.csv`."""
    for name, text in files.items():
        s3.client().put_object(Bucket=BUCKET, Key=key(name), Body=text.encode())


def key(name: str) -> str:
    return f"reference/products-{name}.csv"


class Function:
    """The function, to be invoked in a process with a read-only file system but for /tmp."""

    def __init__(self, target: LoadTarget, image: Image, tmp_path: Path) -> None:
        self.home = tmp_path / "function"
        self.image, self.project = image, target.project
        own = {
            "HOME": "/tmp",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.environment = environment(self.home, **target.environment, **own)
        self.peak_mib = 0

    def invoke(self, *events: dict[str, Any]) -> list[dict[str, Any]]:
        # A file, as Lambda's own: without one DuckDB takes Python for a console, and shows its progress.
        runtime = self.home.with_name("runtime.py")
        runtime.write_text(RUNTIME)
        words = [str(self.image.python), str(runtime), *map(json.dumps, events)]
        done = subprocess.run(
            ["unshare", "-m", "sh", "-euc", LAMBDA_MOUNTS, "sh", str(self.image.environment), str(self.project), *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        *answers, last = map(json.loads, done.stdout.splitlines())
        self.peak_mib = last["peak MiB"]
        return answers


@pytest.fixture
def function(target: LoadTarget, image: Image, s3: MotoS3, tmp_path: Path) -> Function:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace may be made here")
    return Function(target, image, tmp_path)


def test_it_loads_what_landed_in_its_limits(function: Function, s3: MotoS3, target: LoadTarget) -> None:
    rows = 200_000
    put(s3, one=f"{HEADER}AA,one\nAA,one\n", cut=f"{HEADER}XX,cu", **{"a b+ü": f"{HEADER}BB,two\n"})
    packed = {
        "products.csv.zst": zstandard.compress(f"{HEADER}DD,zst\n".encode()),
        "products.csv.gz": gzip.compress(f"{HEADER}DD,gz\n".encode()),
        "products.parquet": parquet_file("SELECT 'DD' AS code, 'parquet' AS name"),
    }
    for name, content in packed.items():
        s3.client().put_object(Bucket=BUCKET, Key=f"reference/{name}", Body=content)
    put(s3, big=HEADER + "".join(f"CC,{number:050}\n" for number in range(rows)))
    first, again, unpacked, last = function.invoke(
        put_event(key("one"), key("a b+ü"), key("cut"), "other/x.csv", key("gone")),
        sqs_event(m=put_event(key("one")), n=put_event(key("a b+ü"), key("one"))),
        put_event(*(f"reference/{name}" for name in packed)),
        put_event(key("big")),
    )
    assert {name: first[name] for name in ("statusCode", "rows_inserted", "skipped")} == {
        "statusCode": 200,
        "rows_inserted": 3,
        "skipped": 2,
    }
    assert fates(first) == {
        key("one"): "loaded",
        key("a b+ü"): "loaded",
        key("cut"): "refused",
        "other/x.csv": "ignored",
        key("gone"): "ignored",
    }
    assert (again["rows_inserted"], again["skipped"], again["batchItemFailures"]) == (0, 2, [])
    assert fates(unpacked) == {f"reference/{name}": "loaded" for name in packed}
    assert (last["rows_inserted"], fates(last)) == (rows, {key("big"): "loaded"})
    assert target.rows("SELECT code, count(*), count(DISTINCT name) FROM uc.bronze.products GROUP BY 1 ORDER BY 1") == [
        ("AA", 2, 1),
        ("BB", 1, 1),
        ("CC", rows, rows),
        ("DD", 3, 3),
    ]
    assert function.peak_mib < MEMORY_MIB
    assert not list(function.home.rglob("*.duckdb_extension")), "a cold start copies no extension"


def test_the_same_event_to_several_functions_at_once(function: Function, s3: MotoS3, target: LoadTarget) -> None:
    put(s3, one=f"{HEADER}AA,one\n")
    with ThreadPoolExecutor(2) as pool:
        answers = [answer for (answer,) in pool.map(function.invoke, [put_event(key("one"))] * 2)]
    assert sorted(answer["rows_inserted"] for answer in answers) == [0, 1]
    assert target.names() == {"one": 1}


class LambdaContext:
    """Lambda's, with a clock that the test sets."""

    memory_limit_in_mb = 512

    def __init__(self, *milliseconds: int) -> None:
        self._left = list(milliseconds)

    def get_remaining_time_in_millis(self) -> int:
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]


@pytest.fixture
def here(target: LoadTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The function in this process, on a landing zone that is a folder; returns the folder."""
    for name, value in {**target.environment, "RATIFY_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "landing"
    monkeypatch.setenv("LANDING_URL", str(folder))
    (folder / "reference").mkdir(parents=True)
    for name in ("one", "two", "three"):
        (folder / key(name)).write_text(f"{HEADER}XX,{name}\n")
    monkeypatch.setattr(aws_lambda, "_MAX_FILES", 1)
    aws_lambda._engine.cache_clear()
    yield folder
    aws_lambda._engine(512).close()
    aws_lambda._engine.cache_clear()


THREE = sqs_event(**{name: put_event(key(name)) for name in ("one", "two", "three")})


def failed(answer: dict[str, Any]) -> list[str]:
    return sorted(item["itemIdentifier"] for item in answer["batchItemFailures"])


def test_what_there_is_no_time_for_is_delivered_again(here: Path, target: LoadTarget) -> None:
    # Time for the first batch, and a moment before the second.
    answer = handler(THREE, LambdaContext(60_000, 1))
    assert answer["rows_inserted"] == 1
    assert len(failed(answer)) == 2
    assert {file["reason"] for file in answer["files"] if file["status"] == "left"} == {
        "the function's time was running out"
    }
    assert sum(target.names().values()) == 1
    again = handler(sqs_event(**{name: put_event(key(name)) for name in failed(answer)}), LambdaContext(60_000))
    assert (again["rows_inserted"], failed(again)) == (2, [])
    assert target.names() == {"one": 1, "two": 1, "three": 1}


def test_without_a_queue_it_fails_so_that_lambda_tries_again(here: Path, target: LoadTarget) -> None:
    event = put_event(*map(key, ("one", "two", "three")))
    with pytest.raises(NotAllLoaded, match="2 of 3 files were not loaded: the function's time was running out"):
        handler(event, LambdaContext(60_000, 1))
    assert sum(target.names().values()) == 1
    again = handler(event, LambdaContext(60_000))
    assert (again["rows_inserted"], again["skipped"]) == (2, 1)
    assert "batchItemFailures" not in again


def test_a_message_is_settled_when_all_of_its_files_are(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = aws_lambda.load_batch

    def unlucky(duckdb: Any, landing: Any, source: Any, files: Any) -> Any:
        if files[0].path == key("two"):
            raise CatalogUnavailable("no answer")
        return load(duckdb, landing, source, files)

    monkeypatch.setattr(aws_lambda, "load_batch", unlucky)
    event = sqs_event(
        both=put_event(key("one"), key("two")), good=put_event(key("three")), bad="{", test='{"Event":"s3:TestEvent"}'
    )
    answer = handler(event, LambdaContext(60_000))
    assert failed(answer) == ["bad", "both"]
    assert answer["rows_inserted"] == 2
    assert {file["file"]: file["reason"] for file in answer["files"] if file["status"] == "left"} == {
        key("two"): "CatalogUnavailable: no answer"
    }


def test_only_what_begins_with_the_prefix_is_taken(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISCOVERY_PREFIX", "reference/products-t")
    answer = handler(put_event(*map(key, ("one", "two", "three")), "../x.csv"), LambdaContext(60_000))
    assert fates(answer) == {key("one"): "ignored", key("two"): "loaded", key("three"): "loaded", "../x.csv": "ignored"}


@pytest.mark.parametrize("event", [{}, {"Records": []} | {"Records": [{"eventSource": "aws:sns"}]}, {"detail": 1}])
def test_another_event_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(NotAnS3Event):
        handler(event, LambdaContext(1000))


def test_the_function_needs_no_more_than_the_image_has(image: Image) -> None:
    program = "import ratify_lakehouse.definitions.aws_lambda, importlib.metadata as m; print(m.version('ratify-lakehouse'))"
    done = subprocess.run([image.python, "-c", program], cwd="/", env={}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == version("ratify-lakehouse")

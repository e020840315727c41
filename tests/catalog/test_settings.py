"""Settings: the environment beats the running stack, and an error for a missing one names the next step."""

import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.errors import NotConfigured
from ratify_lakehouse.settings import CatalogConnection, Settings, catalog_name

NAMES = (
    "RATIFY_HOME",
    "RATIFY_CACHE",
    "XDG_CACHE_HOME",
    "UNITY_HOST",
    "UNITY_TOKEN",
    "UNITY_CLIENT_ID",
    "UNITY_CLIENT_SECRET",
    "UNITY_CATALOG",
    "UNITY_WAREHOUSE_ID",
    "SPARK_REMOTE",
    "LANDING_URL",
)


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings, and no file with any in the working directory."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def running(tmp_path: Path) -> Path:
    """A home in which a stack left its state."""
    home = tmp_path / ".ratify"
    home.mkdir()
    (home / "token").write_text("from-stack\n")
    catalog = {"url": "http://127.0.0.1:1", "name": "local", "token_file": str(home / "token"), "pid": 1}
    (home / "stack.json").write_text(json.dumps({"pid": 1, "catalog": catalog, "spark": {"remote": "sc://127.0.0.1:2"}}))
    return home


def test_nothing_set_and_nothing_running() -> None:
    with pytest.raises(NotConfigured, match=r"set UNITY_HOST and UNITY_TOKEN, or start .*`ratify up`"):
        Settings().catalog_connection()
    with pytest.raises(NotConfigured, match=r"set SPARK_REMOTE .*`ratify up`"):
        Settings().spark_url()
    with pytest.raises(NotConfigured, match="UNITY_HOST"):
        UnityCatalog().default_schema()


def test_an_empty_home_is_not_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATIFY_HOME", "")
    assert Settings().home == Path.cwd() / ".ratify"


def test_the_jars_of_all_projects_are_in_the_user_s_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/people/ann")
    assert Settings().jars == Path("/people/ann/.cache/ratify/jars")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert Settings().jars == Path("/people/ann/.cache/ratify/jars")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/ann")
    assert Settings().jars == Path("/var/cache/ann/ratify/jars")
    for given, found in (
        ("", Path("/var/cache/ann/ratify")),
        ("~/mine", Path("/people/ann/mine")),
        ("here", tmp_path / "here"),
    ):
        monkeypatch.setenv("RATIFY_CACHE", given)
        assert Settings().jars == found / "jars"


def test_a_user_without_a_home_names_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATIFY_CACHE", "~nobody-of-this-machine/cache")
    with pytest.raises(NotConfigured, match="set RATIFY_CACHE to a folder"):
        _ = Settings().jars


def test_commands_find_the_state_and_the_settings_of_their_project_from_any_of_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ratify").mkdir()
    (tmp_path / ".env").write_text("UNITY_CATALOG=of_the_project\n")
    (deep := tmp_path / "assets" / "bronze").mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert (Settings().home, Settings().unity_catalog) == (tmp_path / ".ratify", "of_the_project")
    (deep / ".env").write_text("UNITY_CATALOG=nearer\n")
    assert (Settings().home, Settings().unity_catalog) == (deep / ".ratify", "nearer")
    monkeypatch.setenv("RATIFY_HOME", "elsewhere")
    assert Settings().home == deep / "elsewhere"


def test_the_running_stack_answers_where_nothing_is_set(running: Path) -> None:
    found = Settings().catalog_connection()
    assert (found.host, found.name, found.token) == ("http://127.0.0.1:1", "local", SecretStr("from-stack"))
    assert Settings().spark_url() == "sc://127.0.0.1:2"
    assert Settings().landing == str(running / "landing")
    assert UnityCatalog().connection == found


def test_engines_are_a_service_principal_of_the_stack_and_the_admin_is_not(running: Path) -> None:
    (running / "engine").write_text("engines\n")
    state = json.loads((running / "stack.json").read_text())
    state["catalog"]["engine_token_file"] = str(running / "engine")
    (running / "stack.json").write_text(json.dumps(state))
    assert Settings().catalog_connection().token == SecretStr("engines")
    assert Settings().catalog_connection(admin=True).token == SecretStr("from-stack")


def test_the_environment_beats_the_running_stack(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = ("https://dbc", "secret", "main", "sc://spark:15002", "s3://landing")
    for name, value in zip(
        ("UNITY_HOST", "UNITY_TOKEN", "UNITY_CATALOG", "SPARK_REMOTE", "LANDING_URL"), values, strict=True
    ):
        monkeypatch.setenv(name, value)
    found = Settings().catalog_connection()
    assert found == CatalogConnection(host="https://dbc", name="main", token=SecretStr("secret"))
    assert (Settings().spark_url(), Settings().landing) == ("sc://spark:15002", "s3://landing")


def test_a_stack_without_spark_is_no_spark(running: Path) -> None:
    state = json.loads((running / "stack.json").read_text())
    (running / "stack.json").write_text(json.dumps({"pid": 1, "catalog": state["catalog"]}))
    with pytest.raises(NotConfigured, match="SPARK_REMOTE"):
        Settings().spark_url()


@pytest.mark.parametrize(
    "given", [{}, {"UNITY_CLIENT_ID": "me"}, {"UNITY_CLIENT_SECRET": "x"}], ids=["nothing", "id alone", "secret alone"]
)
def test_a_host_without_credentials(monkeypatch: pytest.MonkeyPatch, given: dict[str, str], running: Path) -> None:
    monkeypatch.setenv("UNITY_HOST", "https://dbc/")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(NotConfigured, match="set UNITY_TOKEN, or UNITY_CLIENT_ID and UNITY_CLIENT_SECRET"):
        Settings().catalog_connection()


def test_oauth_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("UNITY_HOST", "https://dbc/"), ("UNITY_CLIENT_ID", "me"), ("UNITY_CLIENT_SECRET", "x")):
        monkeypatch.setenv(name, value)
    found = Settings().catalog_connection()
    assert (found.host, found.client_id, found.client_secret, found.token) == ("https://dbc", "me", SecretStr("x"), None)


def test_a_token_beside_an_oauth_client_is_the_admins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOST": "https://dbc", "TOKEN": "t", "CLIENT_ID": "me", "CLIENT_SECRET": "x"}.items():
        monkeypatch.setenv(f"UNITY_{name}", value)
    engines, admin = Settings().catalog_connection(), Settings().catalog_connection(admin=True)
    assert (engines.token, engines.client_id, engines.client_secret) == (None, "me", SecretStr("x"))
    assert (admin.token, admin.client_id, admin.client_secret) == (SecretStr("t"), None, None)
    # A token of the resource's own beats both.
    assert UnityCatalog(host="https://dbc", token="mine").connection.token == SecretStr("mine")
    monkeypatch.delenv("UNITY_TOKEN")
    assert Settings().catalog_connection(admin=True) == engines


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("UNITY_HOST", "h"), ("UNITY_TOKEN", "s3cret"), ("UNITY_CLIENT_SECRET", "s3cret")):
        monkeypatch.setenv(name, value)
    for shown in (Settings(), Settings().catalog_connection()):
        assert "s3cret" not in repr(shown) + str(shown) + shown.model_dump_json()


def test_a_resources_own_fields_beat_the_environment(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNITY_HOST", "https://dbc")
    monkeypatch.setenv("UNITY_TOKEN", "other")
    monkeypatch.setenv("UNITY_CATALOG", "main")
    found = UnityCatalog(host="http://here/", token="mine", name="mycatalog").connection
    assert found == CatalogConnection(host="http://here", name="mycatalog", token=SecretStr("mine"))


def test_home_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Settings().home == tmp_path / ".ratify"
    monkeypatch.setenv("RATIFY_HOME", "elsewhere")
    assert Settings().home == tmp_path / "elsewhere"


def test_settings_in_a_file_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("UNITY_CATALOG=from_file\nNOT_OURS=1\n")
    assert Settings().unity_catalog == "from_file"
    monkeypatch.setenv("UNITY_CATALOG", "from_environment")
    assert Settings().unity_catalog == "from_environment"


def test_discovery_is_set_by_single_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "MODE": "notification",
        "SETTLE_SECONDS": "2.5",
        "INCLUDE_EXISTING": "false",
        "ARCHIVE": "_old/",
    }.items():
        monkeypatch.setenv(f"DISCOVERY_{name}", value)
    found = Settings().discovery
    assert (found.mode, found.settle_seconds, found.include_existing, found.archive) == ("notification", 2.5, False, "_old")
    assert found.dead_letter == "_dead_letter"


@pytest.mark.parametrize(("name", "value"), [("ARCHIVE", "old"), ("MODE", "guess"), ("SETTLE_SECONDS", "-1"), ("TYPO", "1")])
def test_wrong_discovery_settings_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(f"DISCOVERY_{name}", value)
    with pytest.raises(NotConfigured, match=f"^DISCOVERY_{name}: .* Correct it in the environment or in .env"):
        Settings()


def test_a_value_that_may_be_a_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_SECURITY_PROTOCOL", "hunter2")
    monkeypatch.setenv("RATIFY_TIME_ZONE", "Mars")
    with pytest.raises(NotConfigured, match="RATIFY_TIME_ZONE: there is no time zone called 'Mars'") as refused:
        Settings()
    assert "KAFKA_SECURITY_PROTOCOL: Input should be 'PLAINTEXT'" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_the_queue_is_a_folder_of_the_home_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    assert Settings().queue == str(tmp_path / "queue")
    monkeypatch.setenv("DISCOVERY_QUEUE", "https://sqs.us-east-1.amazonaws.com/1/q")
    assert Settings().queue == "https://sqs.us-east-1.amazonaws.com/1/q"


def test_the_name_of_the_catalog_is_that_of_now(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Definitions are given it from a cache."""
    assert catalog_name() == "ratify"
    (tmp_path / ".env").write_text("UNITY_CATALOG=of_file\n")
    assert catalog_name() == "of_file"
    (tmp_path / ".env").write_text("UNITY_CATALOG=of_then\n")
    assert catalog_name() == "of_then"
    monkeypatch.setenv("UNITY_CATALOG", "of_shell")
    assert catalog_name() == "of_shell"

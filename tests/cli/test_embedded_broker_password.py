"""The password of the embedded broker, from KAFKA_PASSWORD to the file that the broker reads."""

from pathlib import Path

import pytest

from ratify_lakehouse.cli.stack_session import stack_config


@pytest.mark.parametrize(("kafka", "password"), [(True, "s3cret"), (True, None), (False, "s3cret")])
def test_the_broker_requires_the_configured_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: bool, password: str | None
) -> None:
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    monkeypatch.delenv("KAFKA_PASSWORD", raising=False)
    if password:
        monkeypatch.setenv("KAFKA_PASSWORD", password)
    file = stack_config(kafka=kafka).kafka_password_file
    if not (kafka and password):
        assert file is None
        return
    assert file is not None
    assert file.read_text() == password
    assert file.stat().st_mode & 0o777 == 0o600
    assert password not in stack_config(kafka=kafka).model_dump_json()

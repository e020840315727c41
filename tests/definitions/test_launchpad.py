"""What the launchpad shows: the configuration of every job, in which no secret has a field."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster_graphql.schema import create_schema
from pydantic import SecretStr

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB

pytestmark = pytest.mark.server

SECRET = re.compile("token|secret|passw|credential|auth|api_?key|private", re.IGNORECASE)

JOBS = """{ repositoriesOrError { ... on RepositoryConnection { nodes {
    name location { name } pipelines { name } allTopLevelResourceDetails { name configFields { name } } } } } }"""
SCHEMA = """query Schema($selector: PipelineSelector!) { runConfigSchemaOrError(selector: $selector) {
    ... on RunConfigSchema { allConfigTypes { ... on CompositeConfigType { fields { name } } } } } }"""


@pytest.fixture(params=["orchestration.definitions", "ratify_lakehouse.definitions.proof_definitions"])
def fields(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, set[str]]]:
    """The names of all fields of the configuration of each job and resource of a code location."""
    with (
        dg.DagsterInstance.local_temp(str(tmp_path)) as instance,
        WorkspaceProcessContext(instance, ModuleTarget(request.param, None, None, None)) as process,
    ):
        context = process.create_request_context()

        def ask(query: str, **variables: Any) -> Any:
            answer = asyncio.run(create_schema().execute_async(query, context_value=context, variable_values=variables))
            assert answer.errors is None
            return answer.data

        (repository,) = ask(JOBS)["repositoriesOrError"]["nodes"]
        found = {
            resource["name"]: {field["name"] for field in resource["configFields"]}
            for resource in repository["allTopLevelResourceDetails"]
        }
        for job in repository["pipelines"]:
            selector = {
                "repositoryName": repository["name"],
                "repositoryLocationName": repository["location"]["name"],
                "pipelineName": job["name"],
            }
            types = ask(SCHEMA, selector=selector)["runConfigSchemaOrError"]["allConfigTypes"]
            found[f"job {job['name']}"] = {field["name"] for each in types for field in each.get("fields", ())}
        yield found


def test_no_secret_has_a_field(fields: dict[str, set[str]]) -> None:
    assert {"host", "retry_seconds"} <= fields["catalog"]
    jobs = [names for name, names in fields.items() if name.startswith("job ")]
    assert jobs
    assert all({"resources", "ops"} <= names for names in jobs)
    assert {name: shown for name, names in fields.items() if (shown := sorted(filter(SECRET.search, names)))} == {}
    # What only our own commands set has none, either.
    assert {name for name, names in fields.items() if names & {"admin", "setting"}} == set()


def test_a_token_of_python_survives_the_copies_that_dagster_makes() -> None:
    used = list[tuple[str, SecretStr | None]]()

    @dg.op
    def use(catalog: UnityCatalog, duckdb: DuckDB) -> None:
        used.extend((each.connection.host, each.connection.token) for each in (catalog, duckdb.catalog))

    @dg.job
    def job() -> None:
        use()

    catalog = UnityCatalog(host="http://here", token="s3cret")
    assert "s3cret" not in repr(catalog)
    configured = {"resources": {"catalog": {"config": {"host": "http://there"}}}}
    done = job.execute_in_process(configured, resources={"catalog": catalog, "duckdb": DuckDB(catalog=catalog)})
    assert done.success
    assert used == [("http://there", SecretStr("s3cret")), ("http://here", SecretStr("s3cret"))]

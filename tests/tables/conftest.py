"""The catalogs of these tests, each started once."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.lake.rest_catalog import rest_catalog
from tests.support.stores.moto_server import moto_server
from tests.support.stores.running import BUCKET, RunningStore


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips these tests unless they are asked for: they fetch a catalog, DuckDB and Spark once."""
    skip = pytest.mark.skip(reason="make tables fetches Iceberg's REST catalog, DuckDB's extensions and another Spark")
    for item in items:
        if "tests/tables" in item.path.as_posix() and "TABLES" not in os.environ:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def moto() -> Iterator[RunningStore]:
    """A running moto: S3 and Glue."""
    with moto_server() as running:
        yield running


@pytest.fixture(scope="session")
def rest_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of Iceberg's REST catalog."""
    with rest_catalog(tmp_path_factory.mktemp("rest")) as url:
        yield url


@pytest.fixture
def catalog(request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of the catalog that a test asks for by its name."""
    if request.param == "rest":
        return {"iceberg.catalog.type": "rest", "iceberg.catalog.uri": request.getfixturevalue("rest_url")}
    moto: RunningStore = request.getfixturevalue("moto")
    reached = {"region": "us-east-1", "access-key-id": "k", "secret-access-key": "s", "endpoint": moto.url}
    both = {f"iceberg.catalog.{of}.{name}": text for of in ("glue", "s3") for name, text in reached.items()}
    return {"iceberg.catalog.type": "glue", "iceberg.catalog.warehouse": f"s3://{BUCKET}/lake", **both}

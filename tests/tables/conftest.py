"""The catalogs of these tests, each started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.lake.rest_catalog import rest_catalog
from tests.support.stores.running import BUCKET, RunningStore


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

"""The catalogs of these tests, each started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.lake.rest_catalog import rest_catalog
from tests.support.stores.running import BUCKET, RunningStore


@pytest.fixture(scope="session")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The settings of Iceberg's REST catalog, which has its files in a folder."""
    folder = tmp_path_factory.mktemp("rest")
    with rest_catalog(folder) as url:
        named = {"type": "rest", "uri": url, "warehouse": f"file://{folder}/warehouse"}
        yield {f"iceberg.catalog.{name}": text for name, text in named.items()}


@pytest.fixture
def catalog(request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of the catalog that a test asks for by its name."""
    if request.param == "rest":
        return dict(request.getfixturevalue("rest"))
    moto: RunningStore = request.getfixturevalue("moto")
    reached = {"region": "us-east-1", "access-key-id": "k", "secret-access-key": "s", "endpoint": moto.url}
    both = {f"iceberg.catalog.{of}.{name}": text for of in ("glue", "s3") for name, text in reached.items()}
    return {"iceberg.catalog.type": "glue", "iceberg.catalog.warehouse": f"s3://{BUCKET}/lake", **both}

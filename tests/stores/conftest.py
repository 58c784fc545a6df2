"""The stores of these tests, each started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.stores.azurite import azurite
from tests.support.stores.gcs_mock import gcs_mock
from tests.support.stores.running import RunningStore
from tests.support.stores.s3proxy import s3proxy


@pytest.fixture(scope="session")
def s3_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    """A running S3Proxy."""
    with s3proxy(tmp_path_factory.mktemp("s3proxy")) as running:
        yield running


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    """A running Azurite."""
    with azurite(tmp_path_factory.mktemp("azurite")) as running:
        yield running


@pytest.fixture(scope="session")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    """A running mock of Google's store."""
    with gcs_mock(tmp_path_factory.mktemp("gcs")) as running:
        yield running


@pytest.fixture(params=["moto", "s3_proxy", "azure", "google"])
def store(request: pytest.FixtureRequest) -> RunningStore:
    """Each of the stores."""
    found: RunningStore = request.getfixturevalue(request.param)
    return found

"""The registry of these tests, started once."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.apicurio import Apicurio, apicurio


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips these tests unless they are asked for: they fetch 109 MB once."""
    skip = pytest.mark.skip(reason="make registry fetches Apicurio Registry")
    for item in items:
        if "tests/registry" in item.path.as_posix() and "REGISTRY" not in os.environ:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    """A running registry."""
    with apicurio(tmp_path_factory.mktemp("apicurio")) as running:
        yield running

"""The registry of these tests, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.apicurio import Apicurio, apicurio


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    """A running registry."""
    with apicurio(tmp_path_factory.mktemp("apicurio")) as running:
        yield running

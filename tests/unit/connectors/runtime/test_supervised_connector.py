"""Which topics a connector has read, as REST shows them."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from connectors.errors import NoConnectorError
from connectors.runtime.supervised_connector import ActiveTopics


def test_topics_that_were_read() -> None:
    """From the catalog; after a reset those that were read since. A deleted connector begins again."""
    connector = Mock(catalog_state=None)

    def find(name: str) -> Mock:
        if name != "a":
            raise NoConnectorError("Connector gone not found")
        return connector

    def read(**ends: int) -> None:
        connector.catalog_state = Mock(logs=[Mock(topic=topic, start=5, end=5 + end) for topic, end in ends.items()])

    topics = ActiveTopics(find)
    assert topics.of("a") == []
    read(t=1, u=0)
    assert topics.of("a") == ["t"]
    topics.reset("a")
    assert topics.of("a") == []
    read(t=2, u=1)
    assert topics.of("a") == ["t", "u"]
    topics.reset("a")
    topics.forget("a")
    assert topics.of("a") == ["t", "u"]
    topics.reset("gone")
    with pytest.raises(NoConnectorError):
        topics.of("gone")

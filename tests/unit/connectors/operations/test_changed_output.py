"""Offsets of a connector whose file names another output than it began with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compactor.errors import OffsetChangeError
from connectors.config.connector import ConnectorConfig
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig
from connectors.operations.offsets import alter_offsets, reset_offsets
from tests.support.catalogs import owned


def _altered(worker: WorkerConfig, connector: ConnectorConfig) -> object:
    return alter_offsets(worker, connector, {})


@pytest.mark.parametrize("change", [reset_offsets, _altered], ids=["DELETE", "PATCH"])
def test_no_offset_changes_if_the_output_is_another(tmp_path: Path, change: Callable[..., object]) -> None:
    """No run could go on from it: that is refused before the connector is taken over, and no broker is asked."""
    settings: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "storage.location": str(tmp_path)}
    worker = WorkerConfig(**settings)
    given = {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t", "output.topic": "other"}
    catalog = owned(connector_storage(worker, "c"))
    with pytest.raises(OffsetChangeError, match="is other for source topic t, but it began with o; nothing was"):
        change(worker, ConnectorConfig.model_validate(given))
    before = catalog.version
    assert catalog.refresh() is catalog.state
    assert catalog.version == before

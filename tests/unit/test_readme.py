"""README.md is true: its files are valid, together."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from connectors.config.files import load_connector, load_worker

TEXT = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
FILES: list[dict[str, Any]] = [json.loads(one) for one in re.findall(r"```json\n(\{.*?)```", TEXT, re.DOTALL)]
WORKER, *CONNECTORS = FILES


@pytest.mark.parametrize("connector", CONNECTORS, ids=[one["name"] for one in CONNECTORS])
def test_its_files_are_valid_together(connector: dict[str, Any], tmp_path: Path) -> None:
    """As `keyfold validate` reads them."""
    paths = (tmp_path / "worker.json", tmp_path / "connector.json")
    for path, content in zip(paths, (WORKER, connector), strict=True):
        path.write_text(json.dumps(content), encoding="utf-8")
    assert load_connector(paths[1], load_worker(paths[0])).config.name == connector["name"]

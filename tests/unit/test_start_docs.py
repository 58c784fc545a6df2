"""docs/start.md is true: its connector gives events their field as key."""

from __future__ import annotations

import json
import re
from pathlib import Path

from connectors.chain.chain import Chain
from connectors.chain.spec import chain_spec
from connectors.config.files import load_connector
from tests.unit.connectors.chain.test_chain import batch

PAGE = Path(__file__).parents[2] / "docs" / "start.md"


def test_its_events_get_their_field_as_key(tmp_path: Path) -> None:
    """The file is valid, and records keep their bytes."""
    (text,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "events.json").write_text(text, encoding="utf-8")
    assert load_connector(tmp_path / "events.json").config.name == "events"
    event = b'{"customer_id": "c-7", "event": "login"}'
    out = Chain(chain_spec(json.loads(text)), str).apply(batch((None, event)))
    assert (out["key"].to_pylist(), out["value"].to_pylist()) == ([b"c-7"], [event])

"""The worked example of docs/semantics.md, record by record."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from connectors.chain.fill import Placeholder, ValueFill
from connectors.converters.json.converter import JsonConverter
from connectors.data.bounds import MOST_READ
from connectors.options import read

PAGE: Final = Path(__file__).parents[4] / "docs" / "semantics.md"
PAIR: Final = re.compile(r"^(\d)  (\d)  (\{.*\})\n   →  (\{.*\})$", re.MULTILINE)


def test_the_documentations_example_of_values_that_are_filled() -> None:
    """Each record is filled from the one before it, as the page says."""
    options = read(JsonConverter.OPTIONS, {"schemas.enable": "false"})
    fill = ValueFill(JsonConverter(options, is_key=False), Placeholder(), MOST_READ)
    text = PAGE.read_text(encoding="utf-8").partition("### Values that are filled")[2].partition("\n### ")[0]
    pairs = PAIR.findall(text)
    assert [int(offset) for offset, *_ in pairs] == list(range(6))
    before: dict[str, bytes] = {}
    for _, key, value, published in pairs:
        before[key] = fill.fill(value.encode(), (), before.get(key), ()).value
        assert before[key].decode() == published

"""Our converters read what Kafka's own read, and write what those write, over generated values."""

from __future__ import annotations

import json

import pytest

from tests.support.connect_classes.asking import are_equal, ask_ours
from tests.support.connect_classes.converter_cases import CASES, ConverterCase
from tests.support.connect_classes.keep import as_compared, kept


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.simple)
def test_the_answers_are_those_of_the_real_class(case: ConverterCase) -> None:
    """Kept answers of the class itself; of JSON that is written the value counts, not its digits or spaces."""
    found = kept(case)
    assert sum(theirs["error"] is None for _, theirs in found) >= len(found) // 4
    pairs = [(asked, as_compared(case, theirs), as_compared(case, ask_ours(asked))) for asked, theirs in found]
    wrong = [one for one in pairs if not are_equal(*one)]
    assert not wrong, "\n".join(json.dumps(part)[:2000] for part in wrong[0])

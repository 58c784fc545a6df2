"""Our transforms and predicates answer as Kafka's own do, over generated records."""

from __future__ import annotations

import json

import pytest

from tests.support.connect_classes.asking import are_equal, ask_ours
from tests.support.connect_classes.cases import EACH, Case
from tests.support.connect_classes.keep import CASES, kept, without_schema_of_null


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.simple)
def test_the_answers_are_those_of_the_real_class(case: Case) -> None:
    """Kept answers of the class itself, of which some at least are no errors; `make conformance` asks it anew."""
    found = kept(case)
    assert len(found) == EACH
    assert sum(theirs["error"] is None for _, theirs in found) >= EACH // 5
    if case.bare_nulls:
        found = [(asked, without_schema_of_null(theirs)) for asked, theirs in found]
    wrong = [(asked, theirs, ours) for asked, theirs in found if not are_equal(asked, theirs, ours := ask_ours(asked))]
    assert not wrong, "\n".join(json.dumps(part)[:2000] for part in wrong[0])

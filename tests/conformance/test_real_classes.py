"""Kafka's and Debezium's own classes answer as they did when their answers were kept, and as ours do on new records."""

from __future__ import annotations

import os
import random

import pytest

from tests.support.connect.real_worker import ensure_connect
from tests.support.connect_classes.asking import ask_java
from tests.support.connect_classes.cases import Case, Draw
from tests.support.connect_classes.converter_cases import CASES as CONVERTERS
from tests.support.connect_classes.converter_cases import ConverterCase
from tests.support.connect_classes.fresh import RECORDS, differences
from tests.support.connect_classes.keep import CASES, ensure_debezium, kept

pytestmark = pytest.mark.skipif("CONFORMANCE_SEEDS" not in os.environ, reason="make conformance fetches the classes")


@pytest.mark.parametrize("case", [*CASES, *CONVERTERS], ids=lambda case: case.simple)
def test_the_kept_answers_are_those_of_the_class(case: Case | ConverterCase) -> None:
    """What `make test` compares ours with is what the class itself answers."""
    asked, answers = zip(*kept(case), strict=True)
    assert ask_java([ensure_connect(), ensure_debezium()], asked) == list(answers)


SEED = int(os.environ.get("CLASSES_SEED") or random.randrange(1 << 31))


@pytest.mark.parametrize("case", [*CASES, *CONVERTERS], ids=lambda case: case.simple)
def test_new_records_are_answered_as_the_class_does(case: Case | ConverterCase) -> None:
    """Schemas of every type, with defaults, names and logical types; the seed that fails is named."""
    different, sound = differences(case, Draw(int(os.environ.get("CLASSES_RECORDS") or RECORDS), SEED))
    assert sound > 0
    assert not different, f"seed {SEED}, {len(different)} differ, the shortest:\n{different[0]}"

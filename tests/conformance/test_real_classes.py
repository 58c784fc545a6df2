"""Kafka's and Debezium's own transforms answer today as they did when their answers were kept."""

from __future__ import annotations

import os

import pytest

from tests.support.connect.real_worker import ensure_connect
from tests.support.connect_classes.asking import ask_java
from tests.support.connect_classes.cases import Case
from tests.support.connect_classes.converter_cases import CASES as CONVERTERS
from tests.support.connect_classes.converter_cases import ConverterCase
from tests.support.connect_classes.keep import CASES, ensure_debezium, kept

pytestmark = pytest.mark.skipif("CONFORMANCE_SEEDS" not in os.environ, reason="make conformance fetches the classes")


@pytest.mark.parametrize("case", [*CASES, *CONVERTERS], ids=lambda case: case.simple)
def test_the_kept_answers_are_those_of_the_class(case: Case | ConverterCase) -> None:
    """What `make test` compares ours with is what the class itself answers."""
    asked, answers = zip(*kept(case), strict=True)
    assert ask_java([ensure_connect(), ensure_debezium()], asked) == list(answers)

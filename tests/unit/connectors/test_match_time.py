"""All matches of a piece of work are bounded together, however quick each of them is."""

from __future__ import annotations

import re
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest
import regex
from structlog.testing import capture_logs

from compactor.model.record import SOURCE
from connectors.chain.chain_pool import borrowed
from connectors.chain.spec import chain_spec
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import FaultyConfigError
from connectors.config.files import OtherFile, clashes
from connectors.config.selection import select
from connectors.config.topics import TopicPattern
from connectors.data.record import ConnectRecord
from connectors.errors import PatternError
from connectors.java_pattern import JavaPattern, java_pattern
from connectors.match_time import CHECK_S, matches_within
from connectors.source.topics import SourceTopics
from connectors.transforms.regex_router import RegexRouter
from connectors.transforms.topic_results import MOST_BYTES
from tests.unit.connectors.test_java_pattern import ROUTED, ListingAdmin, SteppingClock, connector

SLOW: Final = "(a|aa)+b"
LITTLE_S: Final = 0.02


@pytest.fixture(scope="module")
def slow_names() -> list[str]:
    """Names of which each match with SLOW takes 0.1 ms or more and so counts as quick; all of them a few LITTLE_S."""
    pattern = java_pattern(SLOW)
    for length in range(8, 30):
        names = [f"{'a' * length}{number}" for number in range(800)]
        if min(_seconds(pattern, each) for each in names[:3]) > 0.0001:
            return names
    raise AssertionError("No name takes so long.")


def _seconds(pattern: JavaPattern, text: str) -> float:
    began = time.thread_time()
    pattern.matches(text)
    return time.thread_time() - began


@pytest.fixture(autouse=True)
def _compiled_anew() -> None:
    """What slow matches took in other tests is forgotten."""
    java_pattern.clear()


def test_quick_matches_count_together() -> None:
    """A hundred matches of 10 ms are a second, of whichever pattern each is; after the block they are free again."""
    patterns = [JavaPattern("a", regex.compile("a")) for _ in range(10)]
    with matches_within(1.0, SteppingClock(0.0101)) as is_left:
        assert all(patterns[number % 10].matches("a") for number in range(100))
        assert not is_left()
        with pytest.raises(PatternError, match='"a" was not matched: all matches of this work took 1 s already'):
            patterns[0].matches("a")
    assert patterns[0].matches("a")


def test_a_part_counts_in_what_it_is_part_of() -> None:
    """Each part ends by itself, and all of them with the whole."""
    pattern, matched = JavaPattern("a", regex.compile("a")), 0
    with matches_within(1.0, SteppingClock(0.01)) as is_left:
        for _ in range(10):
            with matches_within(0.25, SteppingClock(0.01)) as is_part_left:
                matched += sum(pattern.matches("a") for _ in range(100) if is_part_left() and is_left())
        with pytest.raises(PatternError, match="took 1 s"):
            pattern.matches("a")
    assert matched == pytest.approx(100, abs=2)


def test_a_check_of_a_config_ends(slow_names: list[str]) -> None:
    """Each name takes less than a slow match would; the fault names the setting."""
    slower = [f"aaa{name}{number}" for name in slow_names for number in range(4 * round(CHECK_S))]
    with pytest.raises(FaultyConfigError) as raised:
        connector({"topics": ",".join(slower), **ROUTED, "transforms.r.regex": SLOW})
    (fault,) = raised.value.faults
    assert fault.key == "transforms.r.regex"
    assert re.search("took [12] s already", fault.text), "A second, if a busy machine makes some of them slow."


def select_of(pattern: str, names: list[str]) -> None:
    select(connector({"topics.regex": pattern}), names, LITTLE_S)


def source_of(pattern: str, names: list[str]) -> None:
    SourceTopics("c", cast("Any", ListingAdmin(names)), look_s=LITTLE_S).matching(TopicPattern(pattern))


@pytest.mark.parametrize("look", [select_of, source_of])
def test_a_look_at_topics_ends(slow_names: list[str], look: Callable[[str, list[str]], None]) -> None:
    """A cluster may have any number of names; the error says which setting it is."""
    with pytest.raises(PatternError, match=r"topics\.regex: .* took 0.02 s already"):
        look(SLOW, slow_names)


def other(number: int, settings: dict[str, str]) -> OtherFile:
    """Returns another connector of the worker."""
    config = ConnectorConfig.model_validate({"name": f"o{number}", "connector.class": "CompactedTopic", **settings})
    return OtherFile(Path("this worker"), config.name, config)


def test_a_comparison_with_another_connector_ends(slow_names: list[str]) -> None:
    """One slow pattern takes a part of the time, and what comes after it is compared too."""
    slow = other(0, {"topics.regex": SLOW, "output.topic": "${topic}.out"})
    quick = other(1, {"topics.regex": "t", "output.topic": "${topic}.out"})
    own = connector({"topics": ",".join(["t", *slow_names]), "output.topic": "${topic}.out"})
    assert [fault.key for fault in clashes(own, [slow, quick], 3 * LITTLE_S, LITTLE_S)] == ["output.topic"]


def test_a_comparison_with_many_connectors_ends(slow_names: list[str]) -> None:
    """What is not compared is found when a topic is taken up, and that is logged."""
    slow = [other(at, {"topics.regex": f"{SLOW}{at}?", "output.topic": "${topic}.out"}) for at in range(30)]
    own, began = connector({"topics": ",".join(slow_names), "output.topic": "${topic}.out"}), time.thread_time()
    with capture_logs() as logged:
        assert clashes(own, slow, 3 * LITTLE_S, LITTLE_S) == ()
    assert time.thread_time() - began < 50 * LITTLE_S, "All of them take a hundred."
    assert [line["event"] for line in logged] == ["patterns of connectors take long: not all were compared"]


def test_the_chain_of_a_portion_ends(slow_names: list[str]) -> None:
    """Its records are rejected once the time is used; those of the next portion have theirs."""
    header = {"transforms.h.type": "InsertHeader", "transforms.h.header": "h", "transforms.h.value.literal": "1"}
    spec = chain_spec({**ROUTED, **header, "transforms": "h,r", "transforms.r.regex": SLOW})
    row = {"partition": 0, "offset": 0, "timestamp": 7, "timestamp_type": 0, "key": b"k", "value": b"v", "headers": []}
    for names in (slow_names[:400], slow_names[400:]):
        records = pa.RecordBatch.from_pylist([{**row, "topic": name} for name in names], schema=SOURCE)
        with borrowed(spec, str, keyed=True, matches_s=LITTLE_S) as chain:
            whys = chain.apply(records)["rejected"].to_pylist()
        assert whys[0] is None
        assert "all matches of this work took 0.02 s already" in whys[-1]


def test_what_becomes_of_topics_takes_no_more_memory_than_is_meant() -> None:
    """A connector may meet any number of topics; routers of equal settings share what is known."""
    routers = [RegexRouter({"regex": "x(.*)", "replacement": "y$1"}) for _ in range(4)]
    tracemalloc.start()
    try:
        for number in range(40_000):
            topic = f"x{number:0240}"
            record = ConnectRecord(topic, 0, 0, 0, None, None, None, None)
            assert routers[number % 4].apply(record).topic == f"y{number:0240}"
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1.5 * MOST_BYTES, f"{kept >> 20} MiB"

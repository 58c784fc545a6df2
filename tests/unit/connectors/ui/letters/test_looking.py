"""Which letters a look reads, and what it says of what it has left out."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.clock import SystemClock
from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.errors import ConflictError, UnreachableError
from connectors.operations.redrive.letters import LetterFilter
from connectors.operations.redrive.plan import RedriveSelection
from connectors.operations.redrive.run import DeadLetters
from connectors.ui.letters.limits import SHOWN_KINDS, LetterLimit, ReadBounds
from connectors.ui.letters.looking import LISTED, LOOK, NEWEST, PAST, Look, look, steps
from tests.support.dead_letters import DeadTopic, letter
from tests.unit.connectors.ui.letters.conftest import SETTINGS

CONFIG = ConnectorConfig.model_validate({"name": "a", "connector.class": "keyfold.CompactedTopic", **SETTINGS})
ALL = LetterFilter()


def opened(folder: Path, topic: DeadTopic, bounds: ReadBounds, *ended: threading.Event) -> DeadLetters:
    settings: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "storage.location": str(folder)}
    limit = LetterLimit(bounds, SystemClock(), *ended)
    return DeadLetters(WorkerConfig(**settings), CONFIG, limit.of(topic.kafka()))


def looked(folder: Path, topic: DeadTopic, bounds: ReadBounds = LOOK, wanted: LetterFilter = ALL) -> Look:
    return look(opened(folder, topic, bounds), opened(folder, topic, PAST), "a", wanted)


def test_a_range_is_read_from_its_end_in_growing_steps() -> None:
    """All of it, each offset once."""
    assert [*steps(0, 2_000)] == [(1_744, 2_000), (720, 1_744), (0, 720)]
    assert [*steps(5, 6)] == [(5, 6)]
    assert [*steps(5, 5)] == []


def test_the_newest_are_looked_at(tmp_path: Path) -> None:
    """Of all partitions together NEWEST offsets; what is older is said to be there."""
    topic = DeadTopic(*(letter(at, b"v", at % 2) for at in range(4)), partitions=2)
    topic.ends = {0: 1 << 20, 1: 1 << 20}
    seen = looked(tmp_path, topic)
    assert (seen.letters, seen.offsets, seen.cut) == (0, 2 << 20, None)
    assert {(number, start) for number, start, _ in topic.ranges if start < (1 << 20) - NEWEST // 2} == set()
    assert {number for number, *_ in topic.ranges} == {0, 1}


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        (ReadBounds(300, LOOK.size, 60.0), "300 letters"),
        (ReadBounds(1_000, 300 * letter(799).size, 60.0), "0 MiB"),
    ],
)
def test_a_bound_cuts_off_the_oldest(tmp_path: Path, bounds: ReadBounds, why: str) -> None:
    """The newest are counted and listed, and it is said why there are no more."""
    seen = looked(tmp_path, DeadTopic(*(letter(at) for at in range(800))), bounds)
    assert why in (seen.cut or "")
    assert 300 <= seen.letters < 330
    assert [each.offset for each in seen.listed] == [*range(799, 799 - LISTED, -1)]


def test_a_bound_cuts_off_the_oldest_of_each_partition(tmp_path: Path) -> None:
    """Not all letters of the last partitions."""
    topic = DeadTopic(*(letter(at, b"v", at % 2) for at in range(4_000)), partitions=2)
    looked(tmp_path, topic, ReadBounds(500, LOOK.size, 60.0))
    assert [number for number, *_ in topic.ranges][:3] == [0, 1, 0]


def test_a_look_takes_its_time_and_no_more(tmp_path: Path) -> None:
    """It is said that they were not read."""
    with pytest.raises(UnreachableError, match="0 s are the longest that the page reads"):
        looked(tmp_path, DeadTopic(letter(0)), ReadBounds(1_000, LOOK.size, 0.0))


def test_a_look_that_is_ended_reads_no_more(tmp_path: Path) -> None:
    """What was read by then is kept."""
    topic, ended = DeadTopic(*(letter(at) for at in range(800))), threading.Event()
    topic.before_read = lambda: ended.set() if len(topic.ranges) == 1 else None  # type: ignore[method-assign]
    seen = look(opened(tmp_path, topic, LOOK, ended), opened(tmp_path, topic, PAST), "a", ALL)
    assert (seen.letters, seen.cut) == (256, "it was cancelled")


def test_lists_of_kinds_and_letters_are_short(tmp_path: Path) -> None:
    """Whoever writes letters may give each a class of its own."""
    seen = looked(tmp_path, DeadTopic(*(letter(at, class_name=f"c{at}") for at in range(80))))
    assert (len(seen.kinds), seen.more_kinds, len(seen.listed)) == (SHOWN_KINDS, 80 - SHOWN_KINDS, LISTED)


def test_letters_that_have_gone_are_not_waiting(tmp_path: Path) -> None:
    """Nor are others of their records; if it cannot be told, that is said, and all are shown."""
    topic = DeadTopic(letter(0), letter(1), replace(letter(2), context=letter(0).context, key=b"k0", timestamp=1_000))
    dead = opened(tmp_path, topic, LOOK)
    dead.redrive(RedriveSelection(3, once=True), limit=1, report=lambda _: None)
    seen = looked(tmp_path, topic)
    assert [(each.offset, each.gone) for each in seen.listed] == [(2, True), (1, False), (0, True)]
    assert [(kind.count, kind.waiting) for kind in seen.kinds] == [(3, 1)]
    topic.held = {0: (1, "{x")}
    seen = looked(tmp_path, topic)
    assert "not of keyfold" in (seen.unknown or "")
    assert [(kind.count, kind.waiting) for kind in seen.kinds] == [(3, None)]
    with pytest.raises(ConflictError):
        dead.fates()

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from compactor.snapshot.manifest import Manifest
from connectors.bootstrap.changes import Repeats
from connectors.bootstrap.freshness import ReadProgress, ReadTime
from connectors.bootstrap.position import (
    ReaderPosition,
    RepeatVerdict,
    deadline_ms,
    first_position,
    retention_ms,
    verdict,
)
from connectors.bootstrap.records import Change
from connectors.errors import ResumeError
from connectors.sinks.output_reader import Headers

BEGUN = ReaderPosition(
    snapshot="s",
    topic="t",
    output_topic="o",
    output_topic_id="O",
    offsets={"0": 12},
    source_offsets={"0": 57, "1": 5},
    generations={"0": 2, "1": 1},
)


def _headers(
    offset: int | None = None, partition: int = 0, generation: int = 2, kind: bytes | None = None, topic: str = "t"
) -> Headers:
    named = [] if offset is None else [("keyfold.source.offset", str(offset).encode())]
    later = [] if generation == 1 else [("keyfold.generation", str(generation).encode())]
    synthetic = [] if kind is None else [("keyfold.synthetic", kind)]
    place = [("keyfold.source.topic", topic.encode()), ("keyfold.source.partition", str(partition).encode())]
    return [("own", b"x"), *place, *named, *later, *synthetic]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (_headers(56), RepeatVerdict.SKIP),
        (_headers(57), RepeatVerdict.TAKE),
        (_headers(1_000, generation=1), RepeatVerdict.SKIP),
        (_headers(0, generation=3), RepeatVerdict.TAKE),
        (_headers(4, partition=1, generation=1), RepeatVerdict.SKIP),
        (_headers(5, partition=1, generation=1), RepeatVerdict.TAKE),
        (_headers(0, partition=2, generation=1), RepeatVerdict.TAKE),
        (_headers(56, topic="another"), RepeatVerdict.TAKE),
        (_headers(kind=b"reset"), RepeatVerdict.SKIP),
        (_headers(kind=b"reset", generation=3), RepeatVerdict.TAKE),
        (_headers(kind=b"identity"), RepeatVerdict.AS_NEXT),
        (_headers(kind=b"identity", generation=1), RepeatVerdict.SKIP),
        ([("keyfold.generation", b"2")], RepeatVerdict.TAKE),
        ([], RepeatVerdict.SKIP),
    ],
)
def test_what_a_snapshot_stands_for_is_skipped(headers: Headers, expected: RepeatVerdict) -> None:
    """Older generations, source offsets below the manifest's, and what a generation begins with."""
    assert verdict(BEGUN, 0, headers) is expected


def _change(offset: int, headers: Headers) -> Change:
    return Change(0, offset, 1, b"k", None, tuple(headers))


def test_a_retired_key_goes_with_the_record_that_follows() -> None:
    """Its tombstone is skipped or taken with that record, also if that comes with the next poll."""
    repeats = Repeats(BEGUN)
    tombstone = _headers(kind=b"identity")
    first = repeats.left([_change(12, tombstone), _change(13, _headers(50)), _change(14, tombstone)])
    assert (first.changes, first.ends) == ([], {0: 14})
    second = repeats.left([_change(15, tombstone), _change(16, _headers(58))])
    assert ([change.offset for change in second.changes], second.ends) == ([14, 15, 16], {0: 17})


@pytest.mark.parametrize(
    ("since_ms", "safe_until_ms", "tombstones_ms", "expected"),
    [
        (None, 500, 100, 500),
        (None, None, 100, None),
        (300, 500, 100, 400),
        (300, None, None, None),
        (300, None, 0, 300),
    ],
)
def test_until_when_a_position_is_good(
    since_ms: int | None, safe_until_ms: int | None, tombstones_ms: int | None, expected: int | None
) -> None:
    """As the manifest says; once all was read at a time, for as long from then on as tombstones are kept."""
    position = replace(BEGUN, since_ms=since_ms, safe_until_ms=safe_until_ms)
    assert deadline_ms(position, tombstones_ms) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"cleanup.policy": "compact", "delete.retention.ms": "7"}, 7),
        ({"cleanup.policy": "compact,delete"}, 86_400_000),
        ({"cleanup.policy": "delete", "delete.retention.ms": "7"}, None),
    ],
)
def test_how_long_tombstones_stay(config: dict[str, str], expected: int | None) -> None:
    """A topic that does not compact keeps them like any record."""
    assert retention_ms(config) == expected


def _manifest(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "connector": "c",
        "topic": "t",
        "output_topic": "o",
        "output_topic_id": "O",
        "created_at": "1970-01-01T00:00:01.000Z",
        "resume_safe_until": "1970-01-01T00:00:02.000Z",
        "source_offsets": {"0": 57},
        "output_offsets": {"0": 12},
        "records": 0,
        "tombstones_excluded": 0,
        "policy": {},
        "schema": (),
        "files": (),
        **changes,
    }
    return Manifest(**fields)


@pytest.mark.parametrize(
    ("until", "since_ms", "safe_until_ms"),
    [
        (None, None, None),
        ("1970-01-01T00:00:02.000Z", None, 2_000),
        ("1970-01-01T00:00:01.000Z", 1_000, None),
        ("1970-01-01T00:00:00.400Z", 400, None),
    ],
)
def test_the_first_position(until: str | None, since_ms: int | None, safe_until_ms: int | None) -> None:
    """If the manifest promises no time, what it says is when a reader had reached its offsets."""
    position = first_position(_manifest(resume_safe_until=until), "s")
    assert (position.offsets, position.since_ms, position.safe_until_ms) == ({"0": 12}, since_ms, safe_until_ms)


@pytest.mark.parametrize("changes", [{"output_topic": None}, {"created_at": "yesterday"}])
def test_a_manifest_without_a_way_on(changes: dict[str, Any]) -> None:
    """Without an output topic, or with a time that is none, nothing can be read on."""
    with pytest.raises(ResumeError):
        first_position(_manifest(**changes), "s")


def test_a_position_can_be_stored() -> None:
    """It comes back as it was; what is damaged or of a later format is refused."""
    moved = BEGUN.at({1: 3, 0: 20}, 9)
    assert ReaderPosition.decode(moved.encode()) == moved
    for damaged in (moved.encode()[:-2], moved.encode().replace('"1":3', '"one":3'), "[]"):
        with pytest.raises(ResumeError, match="cannot be read"):
            ReaderPosition.decode(damaged)
    with pytest.raises(ResumeError, match="has format 2"):
        ReaderPosition.decode(replace(moved, format_version=2).encode())


def test_since_when_a_reader_is_current() -> None:
    """A time counts once the ends that were asked for then are passed in every partition."""
    first, second = ReadTime(10, 1), ReadTime(20, 11)
    asked = ReadProgress().ask({0: 5, 1: 0}, first)
    assert asked.reach({0: 4, 1: 0}).current is None
    reached = asked.reach({0: 5, 1: 2})
    assert (reached.current, reached.asked) == (first, None)
    again = reached.ask({0: 9, 1: 2}, second)
    assert (again.current, again.reach({0: 9, 1: 2}).current) == (first, second)

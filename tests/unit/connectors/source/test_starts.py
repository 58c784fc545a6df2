"""Where a connector's query begins: at the catalog's ends, whatever the brokers knew when it was taken over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compactor.model.actions import AddTopic, Append, CloseTopic
from compactor.model.state import CatalogState, apply
from compactor.storage.local import LocalStorage
from connectors.config.connector import ConnectorConfig
from connectors.errors import SourceChangedError
from connectors.kafka.client_settings import ClientSettings
from connectors.source import plan
from connectors.source.options import ORDERED_MAX, source_options
from connectors.source.plan import Offsets
from connectors.source.planner import Planner
from tests.support.clocks import ManualClock
from tests.support.engine import intake, new_state
from tests.support.memory.cluster import MemoryCluster

ONLY: dict[str, Any] = {"name": "c", "connector.class": "keyfold.CompactedTopic"}


class Brokers(MemoryCluster):
    """Brokers that know topic b always, and t once a test puts it there."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(0)
        self.put("b", (0, 2))


def closed(state: CatalogState) -> CatalogState:
    """`state` with topic b, and with topic t closed, whose one log ends at 4."""
    taken = Append(topic="t", partition=0, start=0, end=4)
    gone = CloseTopic(topic="t", reason="deleted")
    return apply(state, [taken, gone, AddTopic(topic="b", topic_id="id-b", output=None, output_id=None)])


def planner(brokers: Brokers, folder: Path, **named: str) -> Planner:
    connector = ConnectorConfig.model_validate({**ONLY, **named})
    state, clients = closed(new_state({0: 0})), ClientSettings({}, {}, {})
    options = source_options(connector, clients, state, 1, intake(LocalStorage(str(folder))))
    return Planner(options, brokers, brokers.clock)


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({}, None),
        ({"max.offsets.per.trigger": "5"}, 5),
        ({"compaction.order": "timestamp"}, ORDERED_MAX),
        ({"compaction.fill": "unavailable", "value.converter": "keyfold.Json"}, ORDERED_MAX),
        ({"compaction.order": "timestamp", "max.offsets.per.trigger": "5"}, 5),
        ({"compaction.order": "timestamp", "max.offsets.per.trigger": "5000000"}, ORDERED_MAX),
    ],
)
def test_a_portion_is_bounded_if_records_have_an_order(
    tmp_path: Path, settings: dict[str, str], most: int | None
) -> None:
    """The worker's own process decides about each record of it (compaction.order)."""
    connector = ConnectorConfig.model_validate({**ONLY, "topics": "t", **settings})
    clients, taken = ClientSettings({}, {}, {}), intake(LocalStorage(str(tmp_path)))
    assert source_options(connector, clients, new_state({0: 0}), 1, taken).limits.max_offsets == most


@pytest.mark.parametrize("named", [{"topics": "t,b"}, {"topics.regex": "[tb]"}], ids=["by name", "by pattern"])
def test_a_topic_that_was_closed_at_take_over_is_read_from_the_catalogs_end(
    tmp_path: Path, named: dict[str, str]
) -> None:
    """Unknown for ten seconds, then back: what the catalog has of it is not read again."""
    brokers = Brokers()
    source = planner(brokers, tmp_path, **named)
    start = source.initial()
    brokers.put("t", (0, 8))
    brokers.clock.advance(10_000)
    end = source.latest(source.latest(start, None), None)
    found = plan.ranges("c", start, end)
    assert [(one.lo, one.hi) for one in found if one.topic == "t"] == [(4, 8)]


def recreated(folder: Path, topics: str) -> tuple[Planner, Offsets]:
    """A planner of `topics`, where it begins, and topic t back under another id ten seconds later."""
    brokers = Brokers()
    source = planner(brokers, folder, topics=topics)
    start = source.initial()
    brokers.put("t", (0, 8), topic_id="id-2")
    brokers.clock.advance(10_000)
    return source, start


def test_a_closed_topic_that_is_another_one_when_it_is_back_is_left_out(tmp_path: Path) -> None:
    """Its offsets mean something else: none of its records goes behind those of the old one."""
    source, start = recreated(tmp_path, "t,b")
    end = source.latest(source.latest(start, None), None)
    assert {one.topic for one in plan.ranges("c", start, end)} == {"b"}


def test_a_closed_topic_that_is_another_one_when_it_is_back_is_an_error_where_it_is_alone(tmp_path: Path) -> None:
    """There is nothing else to go on with."""
    source, start = recreated(tmp_path, "t")
    with pytest.raises(SourceChangedError, match="t was recreated: its id is id-2"):
        source.latest(start, None)


def test_a_run_with_an_end_does_not_wait_for_a_topic_that_is_closed(tmp_path: Path) -> None:
    """That it is gone was found out at the take-over, or long ago; one that is there by then is read, too."""
    brokers = Brokers()
    source = planner(brokers, tmp_path, topics="t,b")
    source.pin()
    assert brokers.clock.at_ms == 0
    brokers.put("t", (0, 8))
    source = planner(brokers, tmp_path, topics="t,b")
    source.pin()
    start = source.initial()
    found = plan.ranges("c", start, source.latest(start, None))
    assert [(one.topic, one.lo, one.hi) for one in found if one.topic == "t"] == [("t", 4, 8)]

"""What a person has chosen: typed, by a slider, or left as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor.settings import FOREVER
from connectors.config.connector import ConnectorConfig
from connectors.config.files import load_connector, load_worker
from connectors.ui.what_if.controls import CONTROLS, chosen_changes, present_values, shown_controls
from tests.support.cli import connector_file, worker_file

LAG = "min.compaction.lag.ms"


@pytest.fixture
def config(tmp_path: Path) -> ConnectorConfig:
    path = connector_file(tmp_path, **{LAG: "7200000", "min.cleanable.dirty.ratio": "0.25"})
    return load_connector(path, load_worker(worker_file(tmp_path))).config


def test_a_form_as_it_was_shown_changes_nothing(config: ConnectorConfig) -> None:
    """Also if a value lies between two stops of its slider."""
    fields: dict[str, str] = {}
    for each in shown_controls(config, {}, {}):
        fields |= {each.key: each.text, f"{each.key}.shown": each.text, f"{each.key}.slider": str(each.place)}
    assert chosen_changes(config, fields) == {}
    assert chosen_changes(config, {}) == {}


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({LAG: "1 h", f"{LAG}.shown": "2 h", f"{LAG}.slider": "0"}, {LAG: "3600000"}),
        ({LAG: "2 h", f"{LAG}.shown": "2 h", f"{LAG}.slider": "0"}, {LAG: "0"}),
        ({LAG: "2 h", f"{LAG}.shown": "2 h", f"{LAG}.slider": "4"}, {}),
        ({LAG: "1 h", f"{LAG}.shown": "1 h", f"{LAG}.slider": "4"}, {LAG: "3600000"}),
        ({LAG: "soon", f"{LAG}.shown": "2 h"}, {LAG: "soon"}),
        *[({f"{LAG}.slider": place}, {}) for place in ("-1", "10", "99", "x", "", "²")],
        ({"max.compaction.lag.ms": "1 d"}, {"max.compaction.lag.ms": "86400000"}),
        ({"max.compaction.lag.ms": "never"}, {}),
        ({"min.cleanable.dirty.ratio.slider": "10"}, {"min.cleanable.dirty.ratio": "0.5"}),
        ({"min.cleanable.dirty.ratio": "0.25"}, {}),
        ({"compaction.scope": "TOPIC"}, {"compaction.scope": "topic"}),
        ({"topics": "other"}, {}),
    ],
)
def test_what_was_typed_counts_before_the_slider(
    config: ConnectorConfig, fields: dict[str, str], changes: dict[str, str]
) -> None:
    """A slider counts if it was moved; no other field of a form does."""
    assert chosen_changes(config, fields) == changes


def test_stops_rise_and_reach_what_there_is(config: ConnectorConfig) -> None:
    """From none, or nearly so, to for ever; a value above a stop stands at it."""
    for each in CONTROLS:
        assert sorted(each.stops, key=float) == [*each.stops]
        assert [each.place(stop) for stop in each.stops] == [*range(len(each.stops))]
    assert CONTROLS[1].place(str(FOREVER)) == len(CONTROLS[1].stops) - 1
    assert CONTROLS[0].place("3600001") == 4
    assert present_values(config)[LAG] == "7200000"


def test_a_control_says_what_is_set_and_what_is_tried(config: ConnectorConfig) -> None:
    """What is refused is shown as it was typed."""
    lag, *_ = shown_controls(config, {LAG: "soon"}, {LAG: "is no number"})
    assert (lag.text, lag.present, lag.is_changed, lag.is_refused) == ("soon", "2 h", True, True)
    assert lag.meaning.startswith("A record younger")
    refused, *_ = shown_controls(config, {LAG: "259200000"}, {LAG: "is too large"})
    assert (refused.text, refused.is_refused) == ("3 d", True)

"""docs/errors.md is true: settings with their defaults, stages, headers of a letter, the line of the log."""

from __future__ import annotations

import json
import re
from itertools import takewhile
from pathlib import Path

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from compactor.errors import RejectedRecordError
from compactor.model.record import RUN, TopicPartition
from connectors.chain.key_identity import AvroKeyIdentity, JsonKeyIdentity
from connectors.config.connector import ConnectorConfig
from connectors.config.definitions import definitions
from connectors.rejection import Rejection, Stage
from connectors.sinks import dead_letter
from connectors.sinks.error_log import log_letters
from connectors.sinks.settings import WriteRules

TEXT = (Path(__file__).parents[4] / "docs" / "errors.md").read_text(encoding="utf-8")
TP = TopicPartition("orders", 1)
REJECTION = Rejection(Stage.VALUE_CONVERTER, "keyfold.Avro", "DataError", "The registry has no schema 7.")
ROW = {
    "topic": "orders", "partition": 1, "offset": 42, "timestamp": 1_764_000_000_000, "timestamp_type": 0,
    "key": b"k", "value": b"v", "rejected": str(REJECTION),
}  # fmt: skip


def _rows(heading: str) -> list[list[str]]:
    """Returns the cells of the first table behind a text."""
    lines = TEXT[TEXT.index(heading) :].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| --- |"))
    table = list(takewhile(lambda line: line.startswith("|"), lines[start + 1 :]))
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table]


def _letters() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([ROW], schema=RUN)


def test_settings_have_the_defaults_that_the_page_says() -> None:
    """Several of one row stand with commas between them."""
    known = definitions(ConnectorConfig)
    for names, defaults, _ in _rows("# Errors of records"):
        pairs = zip(re.findall(r"`([^`]+)`", names), re.findall(r"`([^`]+)`", defaults) or [None], strict=True)
        for name, default in pairs:
            assert known[name].default == default, name


def test_every_stage_has_a_row() -> None:
    """In any order, some of them together."""
    found = {name for row in _rows("## Stages") for name in re.findall(r"`([A-Z_]+)`", row[0])}
    assert found == {stage.value for stage in Stage}


def test_a_letter_has_the_headers_of_the_page() -> None:
    """With the values of its examples."""
    rules = WriteRules(tolerate=True, dead_letters="d", context_headers=True)
    ((_, _, _, headers),) = dead_letter.records("orders", 0, TP, _letters(), {}, rules)
    found = {name: bytes(value or b"").decode() for name, value in headers}  # type: ignore[arg-type]
    documented = {name.strip("`"): example for name, example in _rows("## Headers of a dead letter")}
    assert documented.keys() == found.keys()
    for name, example in documented.items():
        if example.startswith("`"):
            assert re.findall(r"`([^`]+)`", example)[0] == found[name], name


def test_a_letter_s_stack_trace_says_where_as_the_page_does() -> None:
    """Tools show it alone: it has stage, class and record."""
    rules = WriteRules(tolerate=True, dead_letters="d", context_headers=True)
    ((_, _, _, headers),) = dead_letter.records("orders", 0, TP, _letters(), {}, rules)
    found = bytes(dict(headers)["__connect.errors.exception.stacktrace"] or b"").decode()  # type: ignore[arg-type]
    documented = dict(_rows("## Headers of a dead letter"))["`__connect.errors.exception.stacktrace`"]
    first, second = found.split("\n")
    assert first == "connectors.errors.DataError: The registry has no schema 7."
    assert re.findall(r"`([^`]+)`", documented) == [second.strip()]


def test_a_connector_that_fails_at_a_record_says_which_before_why() -> None:
    """Topic, partition and offset, then stage and class: the reason may be long."""
    with pytest.raises(RejectedRecordError) as caught:
        dead_letter.refuse_rejected("orders", TP, _letters(), {})
    assert caught.value.message == (
        "Connector orders: record orders-1 at offset 42 cannot be folded: "
        "VALUE_CONVERTER keyfold.Avro DataError: The registry has no schema 7."
    )


def test_the_names_of_what_compares_keys_stand_on_the_page() -> None:
    """`dlq --class` takes them, and no file has them."""
    for identity in (JsonKeyIdentity, AvroKeyIdentity):
        assert f"`{identity.name}`" in TEXT


def test_the_line_of_the_log_is_that_of_the_page() -> None:
    """With errors.log.include.messages."""
    with capture_logs() as lines:
        log_letters("orders", 0, TP, _letters(), {}, messages=True)
    assert lines[0]["event"] in TEXT


@pytest.mark.parametrize("text", re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL))
def test_each_example_of_settings_is_one(text: str) -> None:
    """A connector file takes it, and has another setting of errors by it."""
    given = {"name": "a", "connector.class": "keyfold.CompactedTopic", "topics": "t", **json.loads(text)}
    config = ConnectorConfig.model_validate(given)
    assert config.errors_log_enable or config.errors_scope == "topic"

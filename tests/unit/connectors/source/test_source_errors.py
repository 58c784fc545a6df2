"""An error of one source topic closes that topic, and the connector is started again with the others."""

from __future__ import annotations

import pytest

from compactor.catalog.catalog import Catalog
from compactor.errors import KeyfoldError
from compactor.ingest.ingest import Intake
from compactor.model.actions import AddTopic, CloseTopic
from compactor.model.record import TopicPartition
from compactor.runs.writer import RunTarget
from compactor.spark.errors import tag
from connectors.config.connector import ConnectorConfig
from connectors.errors import DataLossError, SourceChangedError, SourceClosedError, TopicSetAsideError, UnreachableError
from connectors.kafka.client_settings import ClientSettings
from connectors.runtime.restart_policy import is_retriable
from connectors.source import source_errors
from connectors.source.options import source_options
from connectors.source.source_errors import (
    ADVICE,
    LOST,
    LOST_ADVICE,
    RECREATED,
    REJECTED_ADVICE,
    TRUNCATED,
    FetchError,
    PartitionState,
    RangeOutcome,
    advice,
    check_none_closed,
    closing_topic,
    fault_of,
    left_out,
    meaning_of,
)
from tests.support.catalogs import NOW
from tests.support.clocks import ManualClock
from tests.support.memory.storage import MemoryStorage


@pytest.fixture
def catalog() -> Catalog:
    """One that knows topics t and u."""
    made = Catalog.open(MemoryStorage(), "c")
    made.take_over("a:1", NOW)
    made.commit(
        lambda _: [AddTopic(topic=name, topic_id=f"id-{name}", output=None, output_id=None) for name in "tu"], NOW
    )
    return made


def about(topic: str, error: KeyfoldError) -> KeyfoldError:
    """`error`, which is about `topic`."""
    error.topic = topic
    return error


def fail(catalog: Catalog, error: Exception, *found: CloseTopic) -> BaseException:
    """What a life that fails with `error` ends with, where a look at the topics finds `found`."""
    with pytest.raises(Exception) as raised, closing_topic(catalog, lambda _: found, ManualClock(NOW)):  # noqa: PT011
        raise error
    return raised.value


@pytest.mark.parametrize(
    ("closed", "fault", "meaning"),
    [
        ("recreated", "recreated", "another topic has its name now, by its id"),
        (
            "record rejected: the record at offset 5: null key.",
            "record rejected",
            "one of its records is bad, and errors.tolerance lets none go: the record at offset 5: null key",
        ),
        ("deleted", None, "deleted"),
        (None, None, ""),
    ],
)
def test_what_a_closed_topic_means(closed: str | None, fault: str | None, meaning: str) -> None:
    """Of a bad record the reason says which one it is."""
    assert fault_of(closed) == fault
    assert closed is None or meaning_of(closed) == meaning


def test_what_can_be_done_is_said_once_for_each_kind_of_fault() -> None:
    """A topic with a bad record keeps its position: it is taken up again, and needs no connector of its own."""
    assert advice("record rejected: x", "record rejected: y") == REJECTED_ADVICE
    assert advice("record rejected: x", "records lost") == f"{LOST_ADVICE} {ADVICE} {REJECTED_ADVICE}"
    assert advice("recreated") == ADVICE


@pytest.mark.parametrize("kind", [SourceChangedError, DataLossError])
def test_the_topic_is_closed_and_the_connector_started_again(catalog: Catalog, kind: type[KeyfoldError]) -> None:
    """It makes no difference if the error comes back from a task as Spark's text."""
    text = f"from Spark: {tag(about('t', kind('t is gone')))}"
    found = fail(catalog, RuntimeError(text), CloseTopic(topic="t", reason=LOST))
    assert isinstance(found, TopicSetAsideError)
    assert is_retriable(found)
    assert "t is gone" in found.message
    assert left_out(catalog.state) == {"t"}


def test_where_nothing_can_be_found_an_operator_decides(catalog: Catalog) -> None:
    """A log that has grown again meanwhile may lack records; what is no topic's fault is none of this."""
    error = SourceChangedError("t was cut")
    assert fail(catalog, error) is error
    assert not is_retriable(error)
    away = UnreachableError("away")
    assert fail(catalog, away, CloseTopic(topic="t", reason=LOST)) is away
    assert left_out(catalog.state) == set()


def test_an_operator_decides_also_while_another_topic_is_closed(catalog: Catalog) -> None:
    """What is found of another topic, in this look or while the life ran, says nothing of the one that was cut."""
    cut = source_errors.truncated("c", TopicPartition("t", 0), 7, 3)
    assert fail(catalog, cut, CloseTopic(topic="u", reason=LOST)) is cut
    assert fail(catalog, cut) is cut


def test_a_topic_that_was_closed_while_the_connector_ran_ends_that_run(catalog: Catalog) -> None:
    """Whoever closed it, the next life leaves it out."""
    catalog.commit(lambda _: [CloseTopic(topic="t", reason=RECREATED)], NOW)
    assert isinstance(fail(catalog, source_errors.recreated("c", "t", "id-t", "other")), SourceClosedError)


@pytest.mark.parametrize("named", [{"topics": "t,u"}, {"topics.regex": "t|u"}])
def test_the_source_never_reads_a_closed_topic(catalog: Catalog, named: dict[str, str]) -> None:
    """It reads a closed topic neither from its end nor as a new topic."""
    catalog.commit(lambda _: [CloseTopic(topic="t", reason=TRUNCATED)], NOW)
    settings = {"name": "c", "connector.class": "keyfold.CompactedTopic", **named}
    target = RunTarget(storage=MemoryStorage(), prefix="p", max_bytes=1)
    intake = Intake(target=target, keyed=True, folds=True)
    config = ConnectorConfig.model_validate(settings)
    options = source_options(config, ClientSettings({}, {}, {}), catalog.state, 1, intake)
    if "topics" in named:
        assert options.selection.topics == ("u",)
    else:
        assert options.selection.pattern is not None
        assert options.selection.pattern.never == {"t"}
    with pytest.raises(SourceClosedError, match="t \\(truncated"):
        check_none_closed("c", catalog.state, lambda _: True)
    check_none_closed("c", catalog.state, lambda name: name != "t")


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (PartitionState("id", 0, 100), RangeOutcome.WAIT),
        (PartitionState("id", 10, 20), RangeOutcome.WAIT),
        (PartitionState("id", None, None), RangeOutcome.WAIT),
        (PartitionState("id", 11, 100), RangeOutcome.LOST),
        (PartitionState("id", 0, 19), RangeOutcome.TRUNCATED),
        (PartitionState("id", 11, 19), RangeOutcome.TRUNCATED),
        (PartitionState("other", 0, 100), RangeOutcome.RECREATED),
        (PartitionState(None), RangeOutcome.DELETED),
    ],
)
def test_outcomes_of_a_range_that_does_not_move(state: PartitionState, outcome: RangeOutcome) -> None:
    """What became of the range [10, 20) follows from topic id, log start and log end."""
    assert source_errors.outcome_of("id", 10, 20, state) is outcome


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("_AUTO_OFFSET_RESET", FetchError.LOOK),
        ("UNKNOWN_TOPIC_OR_PART", FetchError.LOOK),
        ("TOPIC_AUTHORIZATION_FAILED", FetchError.REFUSED),
        ("_BAD_MSG", FetchError.DAMAGED),
        ("_TRANSPORT", FetchError.WAIT),
        ("_ALL_BROKERS_DOWN", FetchError.WAIT),
    ],
)
def test_kinds_of_fetch_errors(code: str, kind: FetchError) -> None:
    """An outage is waited for, what may be a lost range is looked into, refusal and damage end the read."""
    assert source_errors.classify(code) is kind

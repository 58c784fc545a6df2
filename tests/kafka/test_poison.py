"""Records that the broker refuses for good, and records that cannot be folded."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from compactor.errors import RejectedRecordError
from compactor.model.publish_plan import PublishTarget
from compactor.model.record import TopicPartition
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import RecordRefusedError
from connectors.sinks.settings import TransactionLimits, WriteRules
from tests.support.kafka import Read, consume_all, create_topic, wait_until
from tests.support.publishing import NOW_MS, Changelog, RunRecord, source_offsets

BIG = Random(1).randbytes(5_000)
"""Too large however it is compressed."""
SMALL = {"max.message.bytes": 2_000}
ALL = WriteRules(tolerate=True)
COUNT = 12
"""Records in each partition: enough to be halved again and again. Each refusal takes the client half a second."""


@pytest.fixture
def changelog(broker: EmbeddedKafka, tmp_path: Path, topic_name: str) -> Changelog:
    """Its output takes batches of 2,000 bytes."""
    return Changelog(broker.bootstrap, tmp_path, topic_name, partitions=3, output_config=SMALL)


def records(*poison: tuple[int, int], per_partition: int = COUNT) -> list[RunRecord]:
    """Three partitions of small records; those named (partition, offset) are too large for the output."""
    return [
        RunRecord(at, b"%d" % at, BIG if (number, at) in poison else b"v%d" % at, partition=number)
        for number in range(3)
        for at in range(per_partition)
    ]


def all_targets(changelog: Changelog, end: int = COUNT) -> list[PublishTarget]:
    return [changelog.target(0, end, number) for number in range(3)]


def settled(changelog: Changelog, letters: str) -> list[Read]:
    """What a reader of the dead letter topic sees."""
    place = TopicPartition(letters, 0)
    wait_until(lambda: changelog.admin.ends([place]) == changelog.admin.high_watermarks([place]), "none is open")
    return consume_all(changelog.bootstrap, letters)


def seen(changelog: Changelog) -> list[tuple[int, int]]:
    found = changelog.read()
    return [(one.partition, offset) for one, offset in zip(found, source_offsets(found), strict=True)]


def test_a_record_that_fits_alone_is_never_refused_for_its_neighbours(changelog: Changelog) -> None:
    """Librdkafka does not split a batch that the broker finds too large, so none becomes larger than a record may."""
    sent = changelog.publish(all_targets(changelog, 400), records(per_partition=400))
    assert sum(one.transactions for one in sent) == 1
    assert len(seen(changelog)) == 1200


def test_a_record_that_the_source_holds_compressed_fits_the_output(changelog: Changelog) -> None:
    """The limit is for compressed bytes, and keyfold compresses; where it may not, the error names the setting."""
    large = RunRecord(3, b"k", b"x" * 20_000)
    changelog.publish(changelog.target(0, 9), [large])
    assert [one.value for one in changelog.read()] == [large.value]
    plain = changelog.publisher(None, None, **{"compression.type": "none"})
    with pytest.raises(RecordRefusedError, match=r"offset 13 .*producer.override.compression.type"):
        changelog.publish(changelog.target(9, 19, output_offset=1), [large._replace(offset=13)], plain)


def test_a_record_at_the_limit_is_published(changelog: Changelog) -> None:
    """Just max.message.bytes with all that Kafka adds; a byte more is refused, as is what the client may not send."""
    added = 61 + 10  # a batch's header; lengths, deltas and the key of its record
    fits = RunRecord(3, b"k", Random(2).randbytes(SMALL["max.message.bytes"] - added), headers=None)
    rules = WriteRules(source_headers=False)
    plain: dict[str, str | int] = {"compression.type": "none"}
    changelog.publish(changelog.target(0, 9), [fits], changelog.publisher(rules, None, **plain))
    for extra, settings in ((b"x", plain), (b"", {**plain, "message.max.bytes": 1_000})):
        record = fits._replace(offset=13, value=(fits.value or b"") + extra)
        with pytest.raises(RecordRefusedError, match="at offset 13"):
            changelog.publish(changelog.target(9, 19), [record], changelog.publisher(rules, None, **settings))
    assert len(changelog.read()) == 1


def test_a_refused_record_fails_the_connector(changelog: Changelog) -> None:
    """With errors.tolerance=none the error names the one record, and everything before it stays sent."""
    with pytest.raises(RecordRefusedError) as raised:
        changelog.publish(all_targets(changelog), records((1, 4)))
    text = str(raised.value)
    for part in (
        f"{changelog.topic}-1 at offset 4",
        changelog.output,
        "Message size too large",
        "errors.tolerance=all",
    ):
        assert part in text
    assert raised.value.aborted > 1
    assert [offset for number, offset in seen(changelog) if number == 1] == list(range(4))
    held = changelog.position(1)
    assert held is not None
    assert (held.offset, held.fold_end) == (4, COUNT)


@pytest.mark.parametrize(
    "poison",
    [
        pytest.param([(0, 0)], id="first"),
        pytest.param([(2, 11)], id="last", marks=pytest.mark.long),  # "far" has it too
        pytest.param([(1, 4), (1, 5)], id="pair"),
        pytest.param([(0, 5), (2, 0), (2, 11)], id="far"),
    ],
)
def test_a_refused_record_is_let_go_and_no_other(changelog: Changelog, poison: list[tuple[int, int]]) -> None:
    """With errors.tolerance=all every other record is seen once, in order; the refused ones are counted."""
    sent = changelog.publish(all_targets(changelog), records(*poison), changelog.publisher(ALL))
    assert seen(changelog) == [(n, at) for n in range(3) for at in range(COUNT) if (n, at) not in poison]
    assert sum(one.refused for one in sent) == len(poison)
    assert sum(one.records for one in sent) == 3 * COUNT - len(poison)
    for number in range(3):
        held = changelog.position(number)
        assert held is not None
        assert (held.offset, held.fold_end) == (COUNT, None)


def test_a_refused_record_becomes_a_dead_letter(changelog: Changelog) -> None:
    """Its original bytes go to the dead letter topic in the transaction that passes it, with Connect's headers."""
    letters = create_topic(changelog.bootstrap, f"{changelog.topic}-dlq")
    rules = WriteRules(tolerate=True, dead_letters=letters, context_headers=True)
    poison = RunRecord(4, b"k4", BIG, (("h", b"1"),), NOW_MS + 4)
    sent = changelog.publish(changelog.target(0, 9), [RunRecord(1), poison, RunRecord(6)], changelog.publisher(rules))
    (letter,) = settled(changelog, letters)
    assert (letter.key, letter.value, letter.timestamp_ms) == (b"k4", BIG, NOW_MS + 4)
    assert letter.headers[0] == ("h", b"1")
    context = dict(letter.headers[1:])
    assert context.pop("__connect.errors.exception.stacktrace")
    assert context == {
        "keyfold.source.timestamp": b"%d" % (NOW_MS + 4),
        "__connect.errors.topic": changelog.topic.encode(),
        "__connect.errors.partition": b"0",
        "__connect.errors.offset": b"4",
        "__connect.errors.connector.name": changelog.connector.encode(),
        "__connect.errors.task.id": b"0",
        "__connect.errors.stage": b"KAFKA_PRODUCE",
        "__connect.errors.class.name": b"keyfold.CompactedTopic",
        "__connect.errors.exception.class.name": b"connectors.errors.RecordRefusedError",
        "__connect.errors.exception.message": b"Broker: Message size too large",
    }
    assert seen(changelog) == [(0, 1), (0, 6)]
    assert (sent[0].refused, sent[0].dead_letters, sent[0].records, sent[0].rejected) == (1, 1, 2, 0)
    assert (sent[0].transactions, sent[0].aborted) == (3, 3)  # the whole, a half of it, and the record alone


def test_a_dead_letter_that_is_refused_fails_the_connector(changelog: Changelog) -> None:
    """There is no further place for it: the error names record and dead letter topic."""
    letters = create_topic(changelog.bootstrap, f"{changelog.topic}-dlq", **SMALL)
    rules = WriteRules(tolerate=True, dead_letters=letters)
    with pytest.raises(
        RecordRefusedError, match=rf"{changelog.topic}-0 at offset 4 .*also as a dead letter in {letters}"
    ):
        changelog.publish(changelog.target(0, 9), [RunRecord(1), RunRecord(4, value=BIG)], changelog.publisher(rules))
    assert settled(changelog, letters) == []
    assert seen(changelog) == [(0, 1)]


def test_rejected_records_leave_in_the_transaction_that_passes_them(changelog: Changelog) -> None:
    """A record without a key goes to the dead letter topic with its bytes, never to the output."""
    letters = create_topic(changelog.bootstrap, f"{changelog.topic}-dlq")
    rules = WriteRules(tolerate=True, dead_letters=letters, context_headers=True)
    keyless = RunRecord(3, None, b"v3", (("keyfold.source.offset", b"7"),), rejected="null key")
    (sent,) = changelog.publish(
        changelog.target(0, 9), [RunRecord(1), keyless, RunRecord(8)], changelog.publisher(rules)
    )
    (letter,) = settled(changelog, letters)
    assert (letter.key, letter.value, letter.timestamp_ms) == (None, b"v3", NOW_MS)
    assert letter.headers[0] == ("keyfold.source.offset", b"7")
    assert dict(letter.headers)["__connect.errors.stage"] == b"TASK_PUT"
    assert dict(letter.headers)["__connect.errors.exception.message"] == b"null key"
    assert seen(changelog) == [(0, 1), (0, 8)]
    assert (sent.records, sent.dead_letters, sent.refused, sent.transactions) == (2, 1, 0, 1)
    assert sent.rejected == 1


@pytest.mark.parametrize("output", [True, False], ids=["output", "output.topic=none"])
def test_dead_letters_without_context_have_their_own_headers_only(changelog: Changelog, output: bool) -> None:
    """errors.deadletterqueue.context.headers.enable=false adds nothing; they also go where nothing is published."""
    letters = create_topic(changelog.bootstrap, f"{changelog.topic}-dlq")
    publisher = changelog.publisher(WriteRules(tolerate=True, dead_letters=letters))
    named: dict[str, Any] = {} if output else {"output": None}
    changelog.publish(changelog.target(0, 5, **named), [RunRecord(0, None, None, rejected="null key")], publisher)
    (letter,) = settled(changelog, letters)
    assert (letter.key, letter.value, letter.headers) == (None, None, ())


def test_without_a_dead_letter_topic_rejected_records_are_passed(changelog: Changelog) -> None:
    """errors.tolerance=all without a dead letter topic lets them go; the position passes them."""
    changelog.publish(changelog.target(0, 5), [RunRecord(0, None, rejected="null key")], changelog.publisher(ALL))
    held = changelog.position()
    assert held is not None
    assert held.offset == 5
    assert seen(changelog) == []


def test_a_rejected_record_is_never_passed_by_default(changelog: Changelog) -> None:
    """errors.tolerance=none: an error that names the record and what to set; nothing moves."""
    with pytest.raises(RejectedRecordError, match=r"-0 at offset 3 cannot be folded: null key.*errors.tolerance=all"):
        changelog.publish(changelog.target(0, 5), [RunRecord(1), RunRecord(3, None, rejected="null key")])
    assert changelog.position() is None


@pytest.mark.parametrize(
    ("config", "poison", "reason"),
    [
        ({"cleanup.policy": "compact"}, RunRecord(3, None), "validate record"),
        ({"message.timestamp.after.max.ms": 1000}, RunRecord(3, timestamp=NOW_MS * 4), "Invalid timestamp"),
    ],
    ids=["no key on a compacted topic", "too far in the future"],
)
def test_every_kind_of_refusal_is_isolated(
    broker: EmbeddedKafka, tmp_path: Path, topic_name: str, config: dict[str, str | int], poison: RunRecord, reason: str
) -> None:
    """INVALID_RECORD and INVALID_TIMESTAMP are refusals like a record that is too large."""
    changelog = Changelog(broker.bootstrap, tmp_path, topic_name, output_config=config)
    sent = changelog.publish(changelog.target(0, 9), [RunRecord(1), poison, RunRecord(6)], changelog.publisher(ALL))
    assert seen(changelog) == [(0, 1), (0, 6)]
    assert sent[0].refused == 1
    with pytest.raises(RecordRefusedError, match=reason):
        changelog.publish(changelog.target(9, 19, output_offset=2), [poison._replace(offset=12)])


@pytest.mark.parametrize(("setting", "limit"), [("queue.buffering.max.kbytes", 1), ("message.max.bytes", 1_000)])
def test_a_record_that_the_client_is_told_not_to_send_is_named(changelog: Changelog, setting: str, limit: int) -> None:
    """What librdkafka can never take is named like what the broker never takes, with its size and the setting."""
    publisher = changelog.publisher(None, TransactionLimits(), **{setting: limit})
    with pytest.raises(RecordRefusedError) as raised:
        changelog.publish(changelog.target(0, 9), [RunRecord(0), RunRecord(1, value=b"x" * 1_500)], publisher)
    for part in (
        "librdkafka refuses",
        "-0 at offset 1 (1,501 bytes)",
        f"{setting} {limit}",
        f"producer.override.{setting}",
    ):
        assert part in str(raised.value)
    assert seen(changelog) == [(0, 0)]


def test_a_full_queue_is_waited_for(changelog: Changelog) -> None:
    """A producer whose queue is short takes everything in the end, in order."""
    publisher = changelog.publisher(None, TransactionLimits(), **{"queue.buffering.max.messages": 3})
    changelog.publish(changelog.target(0, 200), records(per_partition=200)[:200], publisher)
    assert seen(changelog) == [(0, at) for at in range(200)]

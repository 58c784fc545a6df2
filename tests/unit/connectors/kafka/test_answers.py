"""A future of an admin client that never comes costs nobody else an answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic, OffsetSpec

from compactor.model.record import TopicPartition
from connectors.errors import UnreachableError
from connectors.kafka.admin import Admin, answer_of, answered
from connectors.kafka.errors import UNANSWERED

SHORT_S = 0.2


def done(result: object) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


def test_each_future_is_waited_for_by_itself_and_all_for_one_time() -> None:
    """Of a hundred that never come the first takes the time, and none of the others any more."""
    late: dict[str, Future[Any]] = {f"late-{number}": Future() for number in range(100)}
    refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    began = time.monotonic()
    found = answered({**late, "there": done(7), "refused": done(refused)}, SHORT_S)
    assert time.monotonic() - began < 10 * SHORT_S
    assert found["there"] == 7
    assert found["refused"].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert {found[name].code() for name in late} == {KafkaError._TIMED_OUT}
    assert KafkaError._TIMED_OUT in UNANSWERED
    with pytest.raises(KafkaException, match="did not answer in time"):
        answer_of(Future(), 0.0)


class Client:
    """An admin client whose futures never come, but for those of topic t or partition 0."""

    def poll(self, _timeout_s: float) -> int:
        return 0

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        return {name: Future() for name in ("t", "u")}

    def list_offsets(self, wanted: Any, **_: Any) -> dict[Any, Future[Any]]:
        class Offset:
            offset = 5

        return {one: done(Offset()) if one.partition == 0 else Future() for one in wanted}

    def create_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        return {one.topic: Future() for one in topics}

    def create_partitions(self, _: Any, **__: Any) -> dict[str, Future[Any]]:
        return {"t": Future()}

    def delete_topics(self, names: Any) -> dict[str, Future[Any]]:
        return {name: Future() for name in names}

    def describe_consumer_groups(self, groups: Any, **_: Any) -> dict[str, Future[Any]]:
        return {name: Future() for name in groups}

    delete_consumer_groups = describe_consumer_groups

    def describe_configs(self, resources: Any, **_: Any) -> dict[Any, Future[Any]]:
        return {one: Future() for one in resources}


@pytest.fixture
def admin() -> Admin:
    client: Any = Client()
    return Admin({"bootstrap.servers": "nowhere:1"}, SHORT_S / 2, lambda _: client)


def test_a_partition_without_an_answer_costs_no_other_its_offset(admin: Admin) -> None:
    """It has an error of its own; nothing is raised for all of them."""
    wanted = [TopicPartition("t", number) for number in (0, 1)]
    found = admin.offsets_each(wanted, OffsetSpec.latest())
    assert found[wanted[0]] == 5
    assert isinstance(late := found[wanted[1]], KafkaError)
    assert late.code() == KafkaError._TIMED_OUT
    assert {name: type(answer) for name, answer in admin.describe_each(["t", "u"]).items()} == {
        "t": KafkaError,
        "u": KafkaError,
    }


def test_every_request_without_an_answer_is_unreachable_brokers(admin: Admin) -> None:
    """Retriable, with the brokers' address, and never Python's own TimeoutError, which nobody expects."""
    requests: list[Callable[[], object]] = [
        lambda: admin.describe(["t"]),
        lambda: admin.ends([TopicPartition("t", 1)]),
        lambda: admin.create_topics([NewTopic("t", 1, 1)]),
        lambda: admin.grow("t", 2),
        lambda: admin.delete_topics(["t"]),
        lambda: admin.has_group("g"),
        lambda: admin.delete_group("g"),
        lambda: admin.topic_config("t"),
    ]
    for request in requests:
        with pytest.raises(UnreachableError, match="nowhere:1"):
            request()
    assert admin.members("g") == []

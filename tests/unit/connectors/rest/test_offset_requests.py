"""A body that names offsets is read in bounded time, whatever its numbers look like."""

from __future__ import annotations

import pytest

from tests.support.rest import RestWorker, message

ODD = {
    "5,000 digits": "9" * 5_000,
    "zeros in front of 5,000 digits": "0" * 20 + "9" * 5_000,
    "zeros in front of 30 digits": "0" * 20 + "9" * 30,
    "more than 63 bits": str(1 << 63),
    "digits of another script": "\u0663",
    "a sign": "-1",
    "a fraction": 1.5,
    "no number": [],
}


@pytest.mark.parametrize("number", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("field", ["kafka_partition", "kafka_offset"])
def test_a_number_that_is_none_is_a_mistake_of_the_clients(worker: RestWorker, field: str, number: object) -> None:
    """The answer names its place, and quotes little of it."""
    numbers = {"kafka_partition": 0, "kafka_offset": 0, field: number}
    partition = {"kafka_topic": "t", "kafka_partition": numbers["kafka_partition"]}
    body = {"offsets": [{"partition": partition, "offset": {"kafka_offset": numbers["kafka_offset"]}}]}
    answer = worker.ask("PATCH", "/connectors/a/offsets", json=body)
    assert answer.status_code == 400
    assert f"{field} is " in message(answer)
    assert len(answer.content) < 1_000


@pytest.mark.parametrize("number", [0, "0", (1 << 63) - 1, str((1 << 63) - 1)])
def test_a_number_may_be_sent_as_text(worker: RestWorker, number: object) -> None:
    """The form is right, and so it is looked for the connector, which there is not."""
    body = {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": number}, "offset": None}]}
    assert worker.ask("PATCH", "/connectors/a/offsets", json=body).status_code == 404

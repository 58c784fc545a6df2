"""Waits for the futures of an admin client's request: together for no longer than one may take, and each for itself.

One that does not come says nothing of the others: it has an error as if its broker had not answered, which is what
librdkafka would say.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from connectors.kafka.errors import cause

K = TypeVar("K")
T = TypeVar("T")


def answered(futures: Mapping[K, Future[T]], seconds: float) -> dict[K, T | KafkaError]:
    """Returns the answer of each of `futures`, or the error; all of them are waited for for `seconds` together."""
    until = time.monotonic() + seconds
    answers: dict[K, T | KafkaError] = {}
    for key, future in futures.items():
        try:
            answers[key] = answer_of(future, until - time.monotonic())
        except KafkaException as error:
            answers[key] = cause(error)
    return answers


def answer_of(future: Future[T], seconds: float) -> T:
    """Returns the answer that comes within `seconds`. Raises KafkaException otherwise."""
    try:
        return future.result(max(0.0, seconds))
    except TimeoutError:
        late = KafkaError(KafkaError._TIMED_OUT, "the admin client did not answer in time")
        raise KafkaException(late) from None

"""What the worker and a counting process say to each other: a question, steps, and the answer."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from compactor.json_types import decoded_as, decoder
from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.operations.analyze import AnalyzeReport

MOST_BYTES: Final = 16 << 20
"""How long an answer may be: that of some 10,000 partitions. It is kept for a while, and read for each page."""


class Question(Struct, frozen=True):
    """Asks what a full fold of `connector` would do now, also with `changes` to its settings."""

    worker: WorkerConfig
    connector: ConnectorConfig
    changes: Mapping[str, str]


class CountingStep(Struct, frozen=True, tag="step"):
    """What is done: the name of the step, and the partition that is read of how many; 0 before the first."""

    name: str = ""
    partition: int = 0
    partitions: int = 0


class CountedAnswer(Struct, frozen=True, tag="answer"):
    """The report, as JSON."""

    report: msgspec.Raw


class CountingRefusal(Struct, frozen=True, tag="refusal"):
    """Why there is none: an error's text, or the traceback of a defect."""

    said: str
    is_defect: bool = False


Message = CountingStep | CountedAnswer | CountingRefusal


def asked(question: Question) -> bytes:
    """Returns the bytes of a question for a process of the same program."""
    return pickle.dumps((question.worker, question.connector, dict(question.changes)))


def question_of(data: bytes) -> Question:
    """Returns the question of these bytes, which the worker has sent."""
    return Question(*pickle.loads(data))  # noqa: S301  # from the worker, through a pipe of its own


def line(message: Message) -> bytes:
    """Returns a message as a line."""
    return msgspec.json.encode(message) + b"\n"


def message_of(data: bytes) -> Message:
    """Returns the message of a line."""
    message: Message = decoder(Message).decode(data)  # type: ignore[arg-type]  # a union
    return message


def written(report: AnalyzeReport) -> bytes:
    """Returns a report as JSON."""
    return msgspec.json.encode(report)


def report_of(data: bytes) -> AnalyzeReport:
    """Returns the report of an answer."""
    return decoded_as(data, AnalyzeReport)

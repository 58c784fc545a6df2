"""Asks librdkafka about its settings, without a broker, so that its ranges are copied nowhere.

A client is made of the setting in question, followed by a name that librdkafka cannot know. Settings are checked
in that order, so the answer is always an error about the one or the other, and no client comes to be.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Literal

import msgspec
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

ClientKind = Literal["consumer", "producer", "admin"]
Kind = Literal["number", "flag", "words", "text", "unknown"]

_UNKNOWN: Final = "keyfold.is.there.such.a.setting"
_NONSENSE: Final = "\x01"
_TOO_LITTLE: Final = "-2147483648"
_RANGE: Final = re.compile(r"value (\S+) is outside allowed range (-?\d+)\.\.(-?\d+)")
_ANSWERS: Final[tuple[tuple[str, Kind], ...]] = (
    ("No such configuration property", "unknown"),
    ("Expected bool value", "flag"),
    ("Invalid value for", "number"),
    ("Invalid value ", "words"),
)
"""How librdkafka's answers to a nonsensical value begin, and what kind of setting it is then."""


class PropertyDescription(msgspec.Struct, frozen=True):
    """What librdkafka's setting is: its kind, and for `number` the least and the greatest one."""

    kind: Kind
    least: int = 0
    most: int = 0
    fractions: bool = False
    """Whether a number may have decimals."""


@cache
def describe(name: str) -> PropertyDescription:
    """Asks librdkafka about its setting `name`; kind `unknown` if it has none of that name."""
    answer = _answer(name, _NONSENSE)
    kind: Kind = next((kind for begin, kind in _ANSWERS if answer and answer.startswith(begin)), "text")
    if kind != "number":
        return PropertyDescription(kind)
    match = _RANGE.search(_answer(name, _TOO_LITTLE) or "")
    if match is None:
        raise AssertionError(f"librdkafka {name}: no range in {_answer(name, _TOO_LITTLE)!r}")
    return PropertyDescription(kind, int(match[2]), int(match[3]), fractions=match[1] != _TOO_LITTLE)


def takes(name: str, value: str) -> bool:
    """Returns whether librdkafka takes `value` for its setting `name`."""
    return _answer(name, value) is None


def _answer(name: str, value: str) -> str | None:
    """Returns what librdkafka says against `value`; None if it takes it."""
    text = refusal("producer", {name: value, _UNKNOWN: ""})
    return None if text is None or _UNKNOWN in text else text


def refusal(kind: ClientKind, config: Mapping[str, Any]) -> str | None:
    """Returns why librdkafka makes no client of `config`, in its own words; None if it does. The client is closed.

    The words may hold values of `config`, secrets too.
    """
    try:
        _make(kind, dict(config))
    except (KafkaException, TypeError, ValueError) as error:
        return _message(error)
    return None


def _make(kind: ClientKind, config: dict[str, Any]) -> None:
    if kind == "consumer":
        Consumer(config, logger=_silent()).close()
    elif kind == "producer":
        Producer(config, logger=_silent())
    else:
        AdminClient(config, logger=_silent())


def _silent() -> logging.Logger:
    logger = logging.getLogger("keyfold.client-check")
    logger.disabled = True
    return logger


def _message(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    text = cause.str() if hasattr(cause, "str") else str(cause)
    return text.strip().rstrip(".") + "."

"""Kinds of values: how the text of a setting becomes a value, and what is allowed.

Every value of a file is text first, as in Kafka Connect (1 and "1", true and "true" are the same), and blanks
around it do not count (Kafka's ConfigDef). `Kind.parse` raises ValueError for a text that is not allowed; a
message of its own says more than `Kind.allowed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from connectors.config.java_regex import translate
from connectors.config.locations import local_path

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", re.ASCII)
_MASTER = re.compile(
    r"local|local\[(\*|0*[1-9]\d*)(\s*,\s*\d+)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://[^\s/,]+:\d{1,5}(,[^\s/,]+:\d{1,5})*|k8s://\S+|yarn",
    re.ASCII,
)
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:,/\[\]]+):(\d{1,5})")


class Kind(msgspec.Struct, frozen=True):
    """A kind of value: Connect's type name, what is allowed in words, and the parser."""

    type: str
    allowed: str
    parse: Callable[[str], Any]


def whole(least: int, most: int = LONG_MAX, also: tuple[str, ...] = (), bound: str = "") -> Kind:
    """Whole numbers from `least` to `most`; a word in `also` stands for None (no limit)."""
    upper = "" if most in (INT_MAX, LONG_MAX) else f" to {most}"
    words = "".join(f', or "{word}"' for word in also)
    allowed = f"a whole number, {least}{upper or ' or more'}{words}{bound}"
    return Kind("INT" if most <= INT_MAX else "LONG", allowed, lambda text: _whole(text, least, most, also))


def _whole(text: str, least: int, most: int, also: tuple[str, ...]) -> int | None:
    if text.lower() in also:
        return None
    if not re.fullmatch(r"[+-]?\d{1,19}", text, re.ASCII):
        raise ValueError
    value = int(text)
    if not least <= value <= most:
        raise ValueError
    return value


def minus_one_or(least: int, meaning: str, most: int = LONG_MAX) -> Kind:
    """-1, which has a `meaning` of its own, or a whole number from `least` on."""
    allowed = f"-1 ({meaning}) or a whole number, {least} or more"
    return Kind(
        "INT" if most <= INT_MAX else "LONG",
        allowed,
        lambda text: -1 if text == "-1" else _whole(text, least, most, ()),
    )


def _ratio(text: str) -> float:
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", text, re.ASCII) or not 0 <= float(text) <= 1:
        raise ValueError
    return float(text)


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def one_of(*words: str) -> Kind:
    """One of `words`, in any case."""

    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError
        return text.lower()

    return Kind("STRING", _either(words), parse)


def _either(words: tuple[str, ...]) -> str:
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


def some_of(*words: str) -> Kind:
    """Some of `words`, in any case and order; "none" for none of them."""

    def parse(text: str) -> frozenset[str]:
        parts = frozenset() if text.lower() == "none" else frozenset(_listed(text.lower()))
        if not parts <= set(words):
            raise ValueError
        return parts

    return Kind("LIST", f"none, or some of {', '.join(words)} with commas between them", parse)


def fixed(*words: str) -> Kind:
    """One of `words` as they are written; all mean the first."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError
        return words[0]

    return Kind("CLASS", _either(words), parse)


def _listed(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise ValueError("has an empty element")
    doubled = sorted({part for part in parts if parts.count(part) > 1})
    if doubled:
        raise ValueError(f"names {', '.join(doubled)} more than once")
    return parts


def _topics(text: str) -> tuple[str, ...]:
    parts = _listed(text)
    for part in parts:
        check_topic(part)
    return parts


def check_topic(name: str) -> str:
    """`name`, if Kafka allows a topic of that name (org.apache.kafka.common.internals.Topic); raises ValueError."""
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise ValueError(f'"{name}" is no topic name: letters, digits, ".", "_" and "-", at most 249, not "." or ".."')
    return name


def _pattern(text: str) -> str:
    translate(text)
    return text


def _template(text: str) -> str:
    """`none`, a topic name, or one with `${topic}` in it."""
    if text.lower() == "none":
        return "none"
    check_topic(text.replace("${topic}", "t"))
    return text


def _policies(text: str) -> frozenset[str]:
    parts = frozenset(_listed(text.lower()))
    if not parts <= {"compact", "delete"}:
        raise ValueError
    return parts


def _connector_name(text: str) -> str:
    if not _NAME.fullmatch(text) or text.endswith("."):
        raise ValueError
    return text


def _location(text: str) -> str:
    local_path(text)
    return text


def _optional_location(text: str) -> str | None:
    return None if text.lower() == "none" else _location(text)


def _servers(text: str) -> str:
    for part in _listed(text):
        found = _SERVER.fullmatch(part)
        if not found or not 0 < int(found[2]) < 65536:
            raise ValueError(f'"{part}" is not HOST:PORT')
    return text


def _master(text: str) -> str:
    if not _MASTER.fullmatch(text):
        raise ValueError
    return text


def _text(text: str) -> str:
    if not text:
        raise ValueError
    return text


RATIO: Final = Kind("DOUBLE", "a number from 0 to 1", _ratio)
FLAG: Final = Kind("BOOLEAN", "true or false", _flag)
TEXT: Final = Kind("STRING", "a text that is not empty", _text)
MASTER: Final = Kind(
    "STRING",
    "local, local[N], local[*], local[N,FAILURES], local-cluster[WORKERS,CORES,MEMORY], spark://HOST:PORT, k8s://URL "
    "or yarn",
    _master,
)
TOPICS: Final = Kind("LIST", "topic names with commas between them", _topics)
TOPIC: Final = Kind("STRING", "a topic name", check_topic)
PATTERN: Final = Kind("STRING", "a Java regular expression for whole topic names", _pattern)
TEMPLATE: Final = Kind("STRING", "a topic name, with ${topic} where the source's name goes, or none", _template)
POLICIES: Final = Kind("LIST", "compact, delete, or both with a comma between them", _policies)
LOCATION: Final = Kind("STRING", "a folder: a path or a file: URL", _location)
OPTIONAL_LOCATION: Final = Kind("STRING", "a folder: a path or a file: URL, or none", _optional_location)
SERVERS: Final = Kind("LIST", "HOST:PORT, several with commas between them", _servers)
CONNECTOR_NAME: Final = Kind(
    "STRING",
    'letters, digits, ".", "_" and "-", at most 200, beginning with a letter, digit or "_" and not ending in "."'
    " (it names a folder, a consumer group and transactional ids)",
    _connector_name,
)

"""Headers of consumed messages, asked for so that a name which is not UTF-8 ends nothing.

confluent-kafka decodes the names when headers are first asked for. One that is not UTF-8 leaves an exception pending
and hands out a list with a null pointer in it, then and later: whoever touches that ends the process. Python finds the
exception where C calls the method, as here, but not always where its own bytecode does. So each message is asked
once, and by C. (A name with a NUL is cut off there, as it is a C string to librdkafka; nothing tells that it was.)
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import methodcaller
from typing import Any, Final

from confluent_kafka import Message

Headers = list[tuple[str, bytes | None]]
_ask: Final = methodcaller("headers")


def of_all(messages: Iterable[Message]) -> tuple[list[Any], dict[int, str]]:
    """The headers of each message, None where it has none; and by number why those of a message cannot be told."""
    found: list[Any] = []
    odd: dict[int, str] = {}
    asked = map(_ask, messages)
    while True:
        try:
            found.extend(asked)  # what came before an error stays in the list
        except (SystemError, UnicodeDecodeError) as error:
            odd[len(found)] = reason(error)
            found.append(None)
        else:
            return found, odd


def of(message: Message) -> tuple[Headers, str | None]:
    """The same of one message: its headers, none where they cannot be told, and then why."""
    (found,), odd = of_all([message])
    return found or [], odd.get(0)


def reason(error: BaseException) -> str:
    """Why the headers cannot be told, naming the name as far as it is known."""
    decoding = error if isinstance(error, UnicodeDecodeError) else error.__cause__
    name = f"{decoding.object!r} " if isinstance(decoding, UnicodeDecodeError) else ""
    return f"a header name {name}is not UTF-8"

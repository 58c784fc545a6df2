"""Shows what librdkafka says of an error: short, and without what its clients have sent.

librdkafka quotes brokers and servers of tokens, which may repeat a request. Messages and lines of the log take its
words from here alone. What a client has sent is known by its settings, in each process that has made one: that is also
a task of Spark, which knows no other secret.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from math import inf
from typing import Any, Final

from confluent_kafka import KafkaError

from compactor.secret_forms import without
from connectors.config.secrets import credentials_of, printable_text
from connectors.kept_values import Kept

_SAID: Final = 1_000
"""Characters that are shown of an error: a server of tokens may have answered with a page."""
_SEARCHED: Final = 4_000
"""Characters of it that are searched for secrets."""
_ANSWER: Final = re.compile(
    r"(?P<asked>Failed to (?:acquire SASL OAUTHBEARER|retrieve \w{1,20}) token(?: from \"[^\"]*+\")?: )"
    r"(?P<answer>.*?)(?P<status> \(\d{3}\))?\Z",
    re.DOTALL,
)
"""How librdkafka quotes what a server of tokens has answered; the log has the status too."""
_NO_WORDS: Final = re.compile(r"[{}<>&=\[\]]")
"""What librdkafka's own reasons do not have, and answers do: JSON, a page, a form that is repeated."""
_LONGEST_REASON: Final = 120
"""Characters of the longest of librdkafka's own reasons, such as curl's `SSL peer certificate … was not OK`."""
_CODE: Final = re.compile(r"\"error\"\s*:\s*\"([A-Za-z_]{1,64})\"")
"""The code of a refusal (RFC 6749, 5.2)."""
_MOST_FORMS: Final = 20_000
"""How many forms of credentials are remembered, those of the newest clients: a text is searched for each, which takes 6
to 50 ms. All clients of a worker share a few hundred; a key in PEM has a thousand."""


class SentCredentials:
    """The credentials of the clients that this process has made, in the forms in which others repeat them."""

    def __init__(self, most_forms: int = _MOST_FORMS) -> None:
        self._lock = threading.Lock()
        # Of each login, by how many there are; changed under the lock.
        self._logins: Kept[tuple[str, ...], None] = Kept(inf, most_forms)

    def remember(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Remembers the credentials in a client's settings, and returns their forms."""
        credentials = credentials_of(config)
        if credentials:
            with self._lock:
                self._logins.put(credentials, None, len(credentials))
        return credentials

    def hidden_in(self, text: str) -> str:
        """Returns `text` without them."""
        with self._lock:
            logins = self._logins.newest_first()
        for credentials, _ in logins:
            text = without(text, credentials)
        return text


SENT: Final = SentCredentials()
"""Of this process."""


def broker_text(error: KafkaError) -> str:
    """Returns what `error` says, for a message or a line of the log."""
    return shown(error.str())


def shown(text: str) -> str:
    """Returns a text of librdkafka's as a message or a line of the log may have it."""
    return printable_text(SENT.hidden_in(without_answer(text[:_SEARCHED])))[:_SAID]


def without_answer(text: str) -> str:
    """Returns `text` with the code alone of an answer of a server of tokens.

    The rest may repeat an assertion or a token that is not known here; or what a setting asks for: if a secret were
    hidden in that, its author would know that he has guessed it.
    """
    match = _ANSWER.search(text)
    if match is None or not (_NO_WORDS.search(match["answer"]) or len(match["answer"]) > _LONGEST_REASON):
        return text
    code = _CODE.search(match["answer"])
    said = code[1] if code else "an answer that is not shown"
    return f"{text[: match.start()]}{match['asked']}{said}{match['status'] or ''}"

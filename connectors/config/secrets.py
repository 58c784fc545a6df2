"""Masks secrets in text that is printed: those that are written out in files, and what placeholders stand for.

Texts come from anyone who may ask REST, and a pattern that is matched keeps all threads waiting: each pattern here
reads a text once, however long it is and whatever is in it (possessive quantifiers, and no start within a word).
No possessive quantifier follows a group: Python 3.11.2 ends such a match too early.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from compactor.secret_forms import HIDDEN, forms_of
from compactor.spark.errors import without_plan
from connectors import terminal_text
from connectors.credentials import logins, secrets_in, without_logins
from connectors.known_values import hide_all, hide_in, without_credentials

_PLACEHOLDER: Final = re.compile(r"\$\{[^}:]*+:[^}]*+\}")
"""A text that is a placeholder."""
_ALWAYS: Final = r"passw(?:or)?d|passphrase|secret|oauthbearer\.(?:config|extensions)|auth\.user\.info"
_KEY: Final = r"(?:access|account|api|private)[._-]?key"
_SECRET: Final = re.compile(
    rf"(?i){_ALWAYS}|{_KEY}(?!.*\.(file|location)$)|\.key\.pem$|keystore\.key$|fs\.azure\.sas\."
    r"|token(?!\.endpoint)|credential(?!s\.(?:client\.id|source))|jaas"
    r"|\Aiceberg\.catalog\.header\.|connection[._-]?string"
)
"""Names of secrets: Kafka's, those of Spark's `spark.redaction.regex`, those of stores and catalogs."""
_NAME_IN_TEXT: Final = (
    rf"(?<![\w.-])(?=[\w.-]*?(?:{_ALWAYS}|{_KEY}|access[._-]?token|jaas\.config))[\w.-]++(?:\\?['\"])?\s*+[=:]\s*+"
)
_VALUE_IN_TEXT: Final = (
    r"\$\{[^}]*+(?:\}|\Z)|\\\"(?:[^\\]|\\(?!\"))*(?:\\\"|\Z)"
    r"|'[^']*+(?:'|\Z)|\"[^\"]*+(?:\"|\Z)|[^\s;}]++"
)
_IN_TEXT: Final = re.compile(
    rf"(?P<name>{_NAME_IN_TEXT})(?!\[hidden\]|unknown key)(?P<value>{_VALUE_IN_TEXT})", re.IGNORECASE
)
"""Names of secrets before a value in a text, without words that sentences hold too (token, credential, jaas)."""
_PEM: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_TWO_PERIODS: Final = re.compile(r"(?<=[\w)\"'])\.\.(?=\s|\Z)")
"""The end of a sentence that quotes another one with its end."""
_LOGIN: Final = re.compile(
    r"://(?!\[hidden\]@)(?:[^\s\"'/]*@|[^\s\"'/:]*+:(?!\d{1,5}/)(?:(?!://)[^\s\"'])*@"
    r"|[^\s\"'/?#@:]*+:(?!\s|\d{1,5}(?!\w))[^/?#\n]*(?<!\s)@(?=[\w\[$]))"
)
"""A user and a password in a text that anyone wrote: up to the last @ of the word; over blanks and quotes only after a
colon. What follows the colon is no port."""
_QUERY: Final = re.compile(r"(?P<url>://(?:\[hidden\]@[^\s\"'<>?#&;]*+|[^\s\"'<>?#]*+))(?P<query>[?#&;][^\s\"'<>]*+)?")
_PARAMETER: Final = re.compile(r"(?<==)[^&;#]++")
_NAME_MAX: Final = 1_000
"""Names that are longer count as those of secrets, unseen: there is no such setting."""


def is_secret(key: str) -> bool:
    """Returns whether the value of `key` is a secret by its name: passwords, keys, tokens, JAAS entries."""
    return len(key) > _NAME_MAX or bool(_SECRET.search(key))


def is_placeholder(text: str) -> bool:
    """Returns whether `text` is one placeholder and nothing else."""
    return bool(_PLACEHOLDER.fullmatch(text.strip()))


def printable(key: str, text: str) -> str:
    """Masks the value of `key` for printing: a secret's placeholder stays, a secret written out becomes `[hidden]`."""
    if is_secret(key):
        return text if is_placeholder(text) else HIDDEN
    return printable_text(without_logins(text, HIDDEN))


def logged_text(text: str, sent: str = "") -> str:
    """Masks a text that only operators read, a line of a log or of stderr: `printable_text`, and all placeholders.

    A character that a terminal would obey is shown as Python writes it. `sent`: the request that the text answers, if
    others read it, see `hide_all`.
    """
    return terminal_text.printable(printable_text(hide_all(text, sent)))


def text_of_connector(text: str, *given: Mapping[str, str]) -> str:
    """Masks a text about a connector with the settings `given`: `printable_text`, its placeholders and its secrets."""
    values = [value for settings in given for value in settings.values()]
    secrets = [value for settings in given for name, value in settings.items() if is_secret(name)]
    secrets += [login for settings in given for login in logins(settings)]
    return terminal_text.printable(printable_text(hide_in(text, values, secrets)))


def printable_text(text: str) -> str:
    """Masks any text for printing: secrets in it are hidden (`NAME=VALUE`, URLs, keys, HTTP's credentials).

    Spark's plans are left out. A sentence that quotes another one ends with one period.
    """
    hidden = _IN_TEXT.sub(_hidden, without_urls_secrets(_PEM.sub(HIDDEN, without_credentials(without_plan(text)))))
    return _TWO_PERIODS.sub(".", hidden)


def without_urls_secrets(text: str) -> str:
    """Hides users and passwords of the URLs in `text`, and every value of their queries."""
    return _QUERY.sub(_hidden_query, _LOGIN.sub(f"://{HIDDEN}@", text))


def _hidden(match: re.Match[str]) -> str:
    return match[0] if _PLACEHOLDER.fullmatch(match["value"]) else f"{match['name']}{HIDDEN}"


def _hidden_query(match: re.Match[str]) -> str:
    query = match["query"] or ""
    return match["url"] + _PARAMETER.sub(
        lambda parameter: parameter[0] if _PLACEHOLDER.fullmatch(parameter[0]) else HIDDEN, query
    )


def credentials_of(client: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the forms of the secrets among librdkafka's settings, for `secret_forms.without`; resolved ones."""
    texts = [(str(value), is_secret(name)) for name, value in client.items()]
    texts += [(login, True) for login in logins(client)]
    whole = (text for text, is_whole in texts if is_whole)
    return forms_of(*whole, *(part for text, own in texts for part in secrets_in(text, is_secret=own)))


def masked(given: Mapping[str, str]) -> dict[str, str]:
    """Masks a file's settings for printing."""
    return {key: printable(key, text) for key, text in given.items()}

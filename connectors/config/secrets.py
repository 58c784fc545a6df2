"""Resolves secrets (`${env:NAME}`, `${file:PATH:KEY}`, `${directory:PATH:KEY}`), and masks them where text is printed.

Placeholders have Kafka Connect's form (ConfigTransformer). They are resolved where a value is used; what is kept and
printed is the placeholder. A message never holds what a placeholder stands for.

Texts come from anyone who may ask REST, and a pattern that is matched keeps all threads waiting: each pattern here
reads a text once, however long it is and whatever is in it (possessive quantifiers, and no start within a word).
No possessive quantifier stands behind a group: Python 3.11.2 ends such a match too early.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from compactor.spark.errors import without_plan
from connectors.errors import ConfigError

HIDDEN: Final = "[hidden]"
_PLACEHOLDER: Final = re.compile(r"\$\{[^}:]*+:[^}]*+\}")
"""A text that is a placeholder; `_BRACES` finds those within one."""
_BRACES: Final = re.compile(r"\$\{([^}]*+)\}")
_ALWAYS: Final = r"passw(?:or)?d|passphrase|secret|oauthbearer\.(?:config|extensions)|auth\.user\.info"
_KEY: Final = r"(?:access|account|api|private)[._-]?key"
_SECRET: Final = re.compile(
    rf"(?i){_ALWAYS}|{_KEY}(?!.*\.(file|location)$)|\.key\.pem$|keystore\.key$"
    r"|token(?!\.endpoint)|credential(?!s\.(?:client\.id|source))|jaas"
)
"""Names of secrets: Kafka's, those of Spark's `spark.redaction.regex`, those of stores."""
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
_UP_TO_AT: Final = re.compile(r"[^\s\"'@]++@?")
_USERINFO: Final = re.compile(r"://(?=[^/@]++@\Z|[^/:]*+:(?!\d{1,5}/))")
"""Where, in a text that ends with its only @, a user and a password begin: not at a port."""
_QUERY: Final = re.compile(r"(?P<url>://[^\s\"'<>?#]*+)(?P<query>[?#][^\s\"'<>]*+)?")
_PARAMETER: Final = re.compile(r"(?<==)[^&;#]++")
_NAME_MAX: Final = 1_000
"""Names that are longer count as those of secrets, unseen: there is no such setting."""


class SecretError(ConfigError, ValueError):
    """A placeholder that cannot be resolved; the message names it and says why."""


def has_placeholder(text: str) -> bool:
    """Returns whether `text` holds a placeholder."""
    return any(":" in found[1] for found in _BRACES.finditer(text, 0, text.rfind("}") + 1))


def resolve(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Replaces every placeholder in `text` by what it stands for.

    `environ` is the process's environment unless given. Raises SecretError for an unknown provider or a variable,
    file or key that is not there.
    """
    environment = os.environ if environ is None else environ
    end = text.rfind("}") + 1
    return _BRACES.sub(lambda found: _one(found, environment), text[:end]) + text[end:]


def _one(found: re.Match[str], environ: Mapping[str, str]) -> str:
    provider, separator, argument = found[1].partition(":")
    if not separator:
        return found[0]
    try:
        if provider == "env":
            return environ[argument]
        return _FROM_FILES[provider](*_path_and_key(argument))
    except (KeyError, OSError, ValueError) as error:
        raise SecretError(f"{found[0]} cannot be resolved: {_why(provider, argument, error)}.") from None


def _why(provider: str, argument: str, error: Exception) -> str:
    if provider not in ("env", *_FROM_FILES):
        return f'there is no provider "{provider}"; there are env, file and directory'
    if provider == "env":
        return f"the environment variable {argument} is not set"
    if isinstance(error, OSError):
        return f"{error.strerror or 'it cannot be read'}: {error.filename}"
    return f"the file has no key {error.args[0]}" if isinstance(error, KeyError) else str(error)


def _path_and_key(argument: str) -> tuple[Path, str]:
    path, separator, key = argument.rpartition(":")
    if not separator or not path or not key:
        raise ValueError("it must have the form ${PROVIDER:PATH:KEY}")
    return Path(path), key


def _from_file(path: Path, key: str) -> str:
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else _properties(text)
    except ValueError:
        raise ValueError(f"{path} is not a properties (or .json) file in UTF-8") from None
    value = content[key] if isinstance(content, dict) else None
    if isinstance(value, str):
        return value
    raise ValueError(f"{path} must hold one flat object with texts as values")


def _properties(text: str) -> dict[str, str]:
    """Reads the entries of a Java properties file. Raises ValueError for a broken escape."""
    import javaproperties  # takes a while, and few need it

    return javaproperties.loads(text)


def _from_directory(path: Path, key: str) -> str:
    if "/" in key or key in (".", ".."):
        raise ValueError("KEY is the name of a file in the directory")
    return (path / key).read_text(encoding="utf-8").rstrip("\r\n")


_FROM_FILES: Final[dict[str, Callable[[Path, str], str]]] = {"file": _from_file, "directory": _from_directory}


def is_secret(key: str) -> bool:
    """Returns whether the value of `key` is a secret by its name: passwords, keys, tokens, JAAS entries."""
    return len(key) > _NAME_MAX or bool(_SECRET.search(key))


def printable(key: str, text: str) -> str:
    """Masks the value of `key` for printing: a secret's placeholder stays, a secret written out becomes `[hidden]`."""
    if is_secret(key):
        return text if _PLACEHOLDER.fullmatch(text.strip()) else HIDDEN
    return printable_text(text)


def printable_text(text: str) -> str:
    """Masks any text for printing: secrets in it are hidden (`NAME=VALUE`, URLs, keys), Spark's plans left out."""
    return _IN_TEXT.sub(_hidden, without_urls_secrets(_PEM.sub(HIDDEN, without_plan(text))))


def without_urls_secrets(text: str) -> str:
    """Hides users and passwords of the URLs in `text`, and every value of their queries."""
    return _QUERY.sub(_hidden_query, _UP_TO_AT.sub(_hidden_user, text))


def _hidden_user(part: re.Match[str]) -> str:
    found = _USERINFO.search(part[0]) if part[0].endswith("@") else None
    return f"{part[0][: found.end()]}{HIDDEN}@" if found else part[0]


def _hidden(found: re.Match[str]) -> str:
    return found[0] if _PLACEHOLDER.fullmatch(found["value"]) else f"{found['name']}{HIDDEN}"


def _hidden_query(found: re.Match[str]) -> str:
    query = found["query"] or ""
    return found["url"] + _PARAMETER.sub(lambda one: one[0] if _PLACEHOLDER.fullmatch(one[0]) else HIDDEN, query)


def masked(given: Mapping[str, str]) -> dict[str, str]:
    """Masks a file's settings for printing."""
    return {key: printable(key, text) for key, text in given.items()}

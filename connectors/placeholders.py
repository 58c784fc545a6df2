"""Resolves placeholders: `${env:NAME}`, `${file:PATH:KEY}`, `${directory:PATH:KEY}` (Kafka's ConfigTransformer).

They are resolved when a value is used; what is kept and shown is the placeholder. What they may read is bounded by
`Limits`, the settings of Kafka's own providers, and looked at before a file is: what is not allowed is not opened.

A setting may come from anyone who may ask REST: files are regular ones and small, a text has few placeholders, and
each pattern here reads a text once, whatever is in it (possessive quantifiers, none after a group: Python 3.11.2 ends
such a match too early).
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from compactor.storage.no_links import open_below
from connectors.credentials import BRACES, MOST_SECRETS, TOO_MANY, has_too_many, items_in
from connectors.errors import ConfigError, PatternError
from connectors.java_pattern import java_pattern
from connectors.known_values import remember

FILES: Final = "config.providers.file.param.allowed.paths"
DIRECTORIES: Final = "config.providers.directory.param.allowed.paths"
VARIABLES: Final = "config.providers.env.param.allowlist.pattern"
SETTINGS: Final = {"env": VARIABLES, "file": FILES, "directory": DIRECTORIES}
"""The worker's settings that say what each provider may read."""
_MOST: Final = 64
"""How many placeholders a text may have: each costs a file that is read, and each stands for up to `_LONGEST`."""
MOST_OVER_REST: Final = 1_000
"""How many placeholders the settings of a connector made over REST may have: each is resolved several times when they
are checked, and 1,000 of a file of 256 KiB take 0.5 s. A chain of 50 classes has as many if each has 20."""
_LONGEST: Final = 256 << 10
"""The largest file (bytes) that is read, and the longest text (characters) that comes of a setting: a secret is a few
KiB, a file of certificates up to 200."""
_TOO_MANY_ITEMS: Final = (
    f"stands for more than {MOST_SECRETS} lines and items, and no more of one value are hidden in logs and errors. "
    "Write out what is no secret, and remove comments; certificates in PEM do not count."
)
_LONGEST_PROPERTIES: Final = 64 << 10
"""The largest properties file (bytes): one line that is continued over 256 KiB would be read for 49 s."""


class SecretError(ConfigError, ValueError):
    """A placeholder that cannot be resolved; the message names it and says why, never what it stands for."""


class Limits(Struct, frozen=True):
    """What the placeholders of a connector, or of a worker file, may read.

    `files` and `directories` are the folders (or files) that the providers of these names may read, `variables` a Java
    pattern of names. None: anything; nothing and "": nothing. `over_rest`: the settings were sent over REST, so a
    placeholder is taken only if its value is shown nowhere.
    """

    files: tuple[str, ...] | None = None
    directories: tuple[str, ...] | None = None
    variables: str | None = None
    over_rest: bool = False


UNLIMITED: Final = Limits()
SHOWN: Final = (
    "a connector made over REST takes no placeholder here, as status, metrics and files show the value; write it out. "
    "Placeholders are for settings of converters, transforms, predicates and Kafka clients."
)


def has_placeholder(text: str) -> bool:
    """Returns whether `text` holds a placeholder."""
    return any(":" in match[1] for match in BRACES.finditer(text, 0, text.rfind("}") + 1))


def placeholders_in(text: str) -> int:
    """Returns how many placeholders `text` holds."""
    return sum(":" in match[1] for match in BRACES.finditer(text, 0, text.rfind("}") + 1))


def resolve(
    text: str, limits: Limits = UNLIMITED, *, environ: Mapping[str, str] | None = None, is_shown: bool = False
) -> str:
    """Replaces every placeholder in `text` by what it stands for.

    `environ` is the process's environment unless given. `is_shown`: the value is no secret, as a topic's name is none.
    Raises SecretError for an unknown provider, a variable, file or key that is not there, what `limits` excludes, and
    for more secrets than can be hidden.
    """
    end = text.rfind("}") + 1
    if placeholders_in(text) > _MOST:
        raise SecretError(f"it has more than {_MOST} placeholders; write them into one file.")
    environment = os.environ if environ is None else environ

    def value_of(match: re.Match[str]) -> str:
        if ":" not in match[1]:
            return match[0]
        value = _value(match, environment, limits)
        if not is_shown:
            _remember(match[0], value, limits)
        return value

    if is_shown and limits.over_rest and has_placeholder(text):
        raise SecretError(SHOWN)
    resolved = BRACES.sub(value_of, text[:end]) + text[end:]
    if resolved != text:
        _check(resolved, text, is_shown=is_shown)
    return resolved


def _remember(written: str, value: str, limits: Limits) -> None:
    if len(items_in(value)) > MOST_SECRETS:
        raise SecretError(f"{written} {_TOO_MANY_ITEMS}")
    remember(written, value, over_rest=limits.over_rest)


def _check(resolved: str, text: str, *, is_shown: bool) -> None:
    if len(resolved) > max(_LONGEST, len(text)):
        raise SecretError(f"its placeholders stand for more than {_LONGEST >> 10} Ki characters.")
    if not is_shown and has_too_many(resolved, is_secret=True):
        raise SecretError(f"with what its placeholders stand for it has {TOO_MANY}. Split it.")


def check_path(path: str, limits: Limits) -> None:
    """Raises SecretError for the path of a file, in a setting that was sent over REST, which `${file:…}` may not read.

    A class or a client opens that file, and may send it, or say of it whether it is there and what form it has.
    """
    if limits.over_rest and not _is_allowed(os.path.realpath(path), limits.files or ()):
        raise SecretError(f"a connector made over REST may name no file but those that {FILES} allows.")


def _value(match: re.Match[str], environ: Mapping[str, str], limits: Limits) -> str:
    provider, _, argument = match[1].partition(":")
    try:
        if provider == "env":
            return _variable(argument, environ, limits)
        if provider in _READERS:
            path, key = _path_and_key(argument)
            return _READERS[provider](path, key, limits)
        raise ValueError(f'there is no provider "{provider}"; there are env, file and directory')
    except OSError as error:
        why = f"{error.strerror or 'it cannot be read'}: {argument.rpartition(':')[0]}"
    except ValueError as error:
        why = str(error)
    raise SecretError(f"{match[0]} cannot be resolved: {why}.") from None


def _variable(name: str, environ: Mapping[str, str], limits: Limits) -> str:
    if limits.variables is not None and not _matches(limits.variables, name):
        raise ValueError(_not_allowed("env", limits, f"the name {name} does not match", is_set=bool(limits.variables)))
    if name not in environ:
        raise ValueError(f"the environment variable {name} is not set")
    return environ[name]


def _matches(pattern: str, name: str) -> bool:
    try:
        return java_pattern(pattern).matches(name)
    except PatternError:  # it takes too long: what is not known to match is not allowed
        return False


def _not_allowed(provider: str, limits: Limits, outside: str, *, is_set: bool) -> str:
    setting = SETTINGS[provider]
    if not is_set:
        of = "a connector made over REST" if limits.over_rest else "it"
        return (
            f"{of} may use no ${{{provider}:…}} as long as the worker file does not say what is allowed, in {setting}"
        )
    return f"{outside} {setting} of the worker file"


def _path_and_key(argument: str) -> tuple[str, str]:
    path, separator, key = argument.rpartition(":")
    if not separator or not path or not key:
        raise ValueError("it must have the form ${PROVIDER:PATH:KEY}")
    if "\0" in argument:
        raise ValueError("a path has no NUL in it")
    return path, key


def _from_file(path: str, key: str, limits: Limits) -> str:
    data = _read(path, "file", limits.files, limits)
    if not path.endswith(".json") and len(data) > _LONGEST_PROPERTIES:
        raise ValueError(f"a properties file may have {_LONGEST_PROPERTIES >> 10} KiB at most")
    try:
        text = data.decode()
        content = _json(text) if path.endswith(".json") else _properties(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is not a properties (or .json) file in UTF-8") from None
    if isinstance(content, dict) and key not in content:
        raise ValueError(f"the file has no key {key}")
    value = content[key] if isinstance(content, dict) else None
    if isinstance(value, str):
        return value
    raise ValueError(f"{path} must hold one flat object with texts as values")


@lru_cache(maxsize=16)  # several settings name one file, and it is read for each
def _json(text: str) -> Any:
    return json.loads(text)


@lru_cache(maxsize=16)
def _properties(text: str) -> dict[str, str]:
    """Reads the entries of a Java properties file. Raises ValueError for a broken escape."""
    import javaproperties  # takes a while, and few need it

    return javaproperties.loads(text)


def _from_directory(path: str, key: str, limits: Limits) -> str:
    if "/" in key or key in (".", ".."):
        raise ValueError("KEY is the name of a file in the directory")
    data = _read(os.path.join(path, key), "directory", limits.directories, limits)  # noqa: PTH118  # as it is written
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError("the file is not UTF-8") from None


_READERS: Final[dict[str, Callable[[str, str, Limits], str]]] = {"file": _from_file, "directory": _from_directory}


def _read(path: str, provider: str, allowed: tuple[str, ...] | None, limits: Limits) -> bytes:
    """Reads a small regular file. Raises ValueError for any other and for one that is not allowed, OSError."""
    place = os.path.realpath(path)
    if allowed is not None and not _is_allowed(place, allowed):
        raise ValueError(_not_allowed(provider, limits, "the file is not below", is_set=bool(allowed)))
    # Links were followed above: one that is there by now leads elsewhere. Neither opening nor reading waits: of a pipe,
    # a device or a trace of the kernel for somebody who writes to it.
    file = open_below("/", place.removeprefix("/"))
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ValueError("it is no regular file")
        return _content(file)
    finally:
        os.close(file)


def _content(file: int) -> bytes:
    data = bytearray()
    while part := os.read(file, _LONGEST + 1 - len(data)):
        data += part
        if len(data) > _LONGEST:
            raise ValueError(f"the file is larger than {_LONGEST >> 10} KiB")
    return bytes(data)


def _is_allowed(place: str, allowed: tuple[str, ...]) -> bool:
    """Returns whether `place`, in which no link is left, is one of `allowed` or below it."""
    return any(Path(place).is_relative_to(os.path.realpath(folder)) for folder in allowed)

"""Collects the faults of a configuration, each with its key, and raises them together."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec
from msgspec import structs
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from compactor.secret_forms import HIDDEN
from connectors.config.definitions import Definition
from connectors.config.fields import RefusalError
from connectors.config.secrets import is_secret, printable, without_urls_secrets
from connectors.credentials import NOT_SHOWN, is_of_login
from connectors.errors import ConfigError
from connectors.options import PLUGIN_VERSIONS, not_available
from connectors.placeholders import SecretError, has_placeholder

CONNECT_LATER: Final[dict[str, str]] = {
    "config.action.reload": "reloading of secrets",
    "initial_state": "states set at creation",
    "connector.plugin.version": PLUGIN_VERSIONS,
    "*.plugin.version": PLUGIN_VERSIONS,
    "tasks.max.enforce": "a choice whether tasks.max is enforced",
    "config.providers*": "config providers other than env, file and directory",
    "response.http.headers.config": "the REST interface",
    "connector.client.config.override.allowlist": "the policy Allowlist",
    "plugin.path": "plugins",
}
"""Kafka Connect's keys (patterns) that keyfold knows of but does not have yet, and what they belong to.

A key that keyfold takes from some release on is removed here.
"""
# How alike a name has to be to be proposed, from 0 to 1: difflib's own default. A lower one proposes names that have
# little in common with the typo, a higher one recognises fewer typos.
_CUTOFF: Final = 0.6

_LISTS: Final = ("transforms", "predicates")


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong: the key it is about ("" = the file as a whole) and a sentence.

    `value` is a value that is not allowed, as it may be shown; `missing` says that a required key is not there.
    """

    key: str
    text: str
    value: str | None = None
    missing: bool = False

    def __str__(self) -> str:
        return f"{self.key}: {self.text}" if self.key else self.text


class FaultyConfigError(ConfigError):
    """A file with faults: `file` and `faults` hold them; the message has one line for each."""

    def __init__(self, file: str, faults: Iterable[Fault]) -> None:
        self.file = file
        self.faults = tuple(structs.replace(fault, text=without_urls_secrets(fault.text)) for fault in faults)
        lines = "\n".join(f"{file}: {fault}" for fault in self.faults)
        super().__init__(lines, "")

    def __reduce__(self) -> tuple[type[FaultyConfigError], tuple[str, tuple[Fault, ...]]]:
        return type(self), (self.file, self.faults)

    def of(self, file: str) -> FaultyConfigError:
        """Names the same faults as those of `file`."""
        return FaultyConfigError(file, self.faults)


class RefusedValueError(ValueError):
    """Raised for a value that is not allowed; the message says what is wrong with it, or what is allowed."""


class SeveralFaultsError(ValueError):
    """Raised by a validator that finds several faults at once; the keys of a family stand without its prefix."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        super().__init__()
        self.faults = tuple(faults)


def raise_all(errors: Iterable[FaultyConfigError]) -> None:
    """Raises one ConfigError with the faults of all `errors`, in their order; does nothing when there are none."""
    faulty = tuple(errors)
    if len(faulty) == 1:
        raise faulty[0]
    if faulty:
        raise ConfigError("\n".join(error.message for error in faulty))


def faults_of(error: ValidationError, known: Mapping[str, Definition], texts: Mapping[str, str]) -> Iterator[Fault]:
    """Translates what pydantic has found in `texts` to one fault for each key: with its value, and what is allowed."""
    seen = set[str]()
    for details in error.errors(include_url=False):
        name = str(details["loc"][0])
        if name not in seen:
            seen.add(name)
            yield from _faults(details, name, known, texts)


def _faults(
    details: ErrorDetails, name: str, known: Mapping[str, Definition], texts: Mapping[str, str]
) -> Iterator[Fault]:
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, SeveralFaultsError):
        prefix = name if name.endswith(".") else ""
        yield from (structs.replace(fault, key=prefix + fault.key) for fault in cause.faults)
    elif isinstance(cause, RefusalError | SecretError):
        yield Fault(name, str(cause))
    elif details["type"] == "missing":
        yield Fault(name, f"missing; it is required: {known[name].valid_values}.", missing=True)
    else:
        yield _not_allowed(name, texts[name], known[name].valid_values, cause)


def _not_allowed(name: str, text: str, allowed: str, cause: Any) -> Fault:
    """Returns the fault of a value that is not allowed.

    What a placeholder stands for is not shown, nor why it is wrong.
    """
    why = f"{cause}; " if cause and str(cause) and not has_placeholder(text) else ""
    return refused(name, text, f"{why}allowed is {allowed}.")


def refused(name: str, text: str, why: str) -> Fault:
    """Returns the fault of a value that is not allowed; a secret is hidden, and what is of a login."""
    value = HIDDEN if is_of_login(name) else printable(name, text)
    return Fault(name, f"{shown(name, text)} is not allowed: {why}", value=value)


def shown(name: str, text: str) -> str:
    """Quotes `text` as a message may show it; a secret is hidden, and what is of a login."""
    return NOT_SHOWN if is_of_login(name) and not is_secret(name) else f'"{printable(name, text)}"'


def not_yet(name: str) -> str | None:
    """Returns the sentence for a key of Connect that comes with a later release; None for any other key."""
    what = next((what for pattern, what in CONNECT_LATER.items() if fnmatchcase(name, pattern)), None)
    return what and not_available(what)


def unknown(name: str, known: Iterable[str], what: str = "key") -> str:
    """Returns the sentence for an unknown `name`: with the nearest known one, if there is one."""
    near = nearest(name, known)
    return f'unknown {what}; did you mean "{near}"?' if near else f"unknown {what}; docs/configuration.md lists all."


def speaks_of(fault: Fault, key: str) -> bool:
    """Returns whether a fault is of the setting or family `key`, of one below it, or names it in its text.

    Short keys are words of other sentences too: of these only the ones that list aliases are looked for.
    """
    plain = key.removesuffix(".")
    if f"{fault.key}.".startswith(f"{plain}."):
        return True
    is_named = "." in plain or plain in _LISTS
    return is_named and re.search(rf"(?<![\w.]){re.escape(plain)}(?!\w)", fault.text) is not None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name most like `name`, or None if nothing is like it.

    Case, and `_` or `-` in place of `.`, do not count as differences.
    """
    by_plain = {_plain(candidate): candidate for candidate in sorted(known, reverse=True)}
    matches = difflib.get_close_matches(_plain(name), by_plain, n=1, cutoff=_CUTOFF)
    return by_plain[matches[0]] if matches else None


def _plain(name: str) -> str:
    return name.lower().replace("_", ".").replace("-", ".")

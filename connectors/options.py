"""Declares the settings of a converter, transform or predicate, and reads them: Connect's ConfigDef in small.

It is apart from the fields of connectors/config: reading tasks read these settings, and must not load pydantic.

A class lists its settings as `OPTIONS`: what a file says, what `/connector-plugins` says of them and what the docs
list is read from there. A value of a file is text first, as everywhere (connectors/config/fields.py).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, Literal

from msgspec import Struct

from compactor.secret_forms import HIDDEN
from connectors.credentials import quoted
from connectors.errors import ConfigError

REQUIRED: Final = object()
"""In place of a default: a file must have the setting."""
_LONGEST: Final = 64 << 10
"""Characters of a setting. A text that is put into each record is in memory for each record of a batch."""
_LONGEST_LIST: Final = 1 << 20
"""Characters of a list: 4,096 columns, as many as a table of MySQL may have, with two names of 64 each take half."""
Kind = Literal["BOOLEAN", "CLASS", "DOUBLE", "INT", "LIST", "LONG", "PASSWORD", "STRING"]
_WHOLE: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_BOUNDS: Final = {"INT": 2**31, "LONG": 2**63}


class Option(Struct, frozen=True):
    """One setting (ConfigDef.ConfigKey). `default` is a value, not a text; `doc` is a sentence or more.

    `allowed`: the only texts that are taken, in any case if `any_case`. `check` returns what is wrong with a value,
    or None. `is_file`: it names a file that the class reads. `longest`: how many characters it may have, if that is
    not what others of its kind may have. `of_server`: it says how a server is asked, and no error
    of a record quotes it.
    """

    name: str
    kind: Kind
    default: Any
    doc: str
    allowed: tuple[str, ...] = ()
    any_case: bool = False
    check: Callable[[Any], str | None] | None = None
    importance: Literal["HIGH", "MEDIUM", "LOW"] = "MEDIUM"
    is_file: bool = False
    longest: int = 0
    of_server: bool = False

    @property
    def may_be_quoted(self) -> bool:
        """Whether an error of a record may show the value, by itself or in a record that a class has put it into."""
        return not self.of_server and not self.is_file and self.kind not in {"BOOLEAN", "PASSWORD"}

    @property
    def most(self) -> int:
        """How many characters are taken: `longest`, or what is enough for its kind."""
        return self.longest or (_LONGEST_LIST if self.kind == "LIST" else _LONGEST)

    @property
    def valid_values(self) -> str:
        """What is allowed, in words."""
        return ", ".join(self.allowed) if self.allowed else _WORDS[self.kind]


_WORDS: Final[dict[str, str]] = {
    "BOOLEAN": "true or false",
    "CLASS": "the name of a class",
    "DOUBLE": "a number",
    "INT": "a whole number",
    "LIST": "texts with commas between them",
    "LONG": "a whole number",
    "PASSWORD": "a text",
    "STRING": "a text",
}


class OptionsError(ConfigError):
    """Settings of a class that are not allowed: `faults` has the name of each, and a sentence."""

    def __init__(self, faults: Iterable[tuple[str, str]]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{name}: {text}" for name, text in self.faults))

    def __reduce__(self) -> tuple[type[OptionsError], tuple[tuple[tuple[str, str], ...]]]:
        return type(self), (self.faults,)


class Values(dict[str, Any]):
    """The values of options by their names. `written` has the texts, as a file has them, that they were made of."""

    def __init__(self, values: Mapping[str, Any], written: Mapping[str, str]) -> None:
        super().__init__(values)
        self.written = written


def read(options: Iterable[Option], texts: Mapping[str, str]) -> dict[str, Any]:
    """Returns the value of each of `options`: of its text in `texts`, or its default. Raises OptionsError with all.

    Names in `texts` that are none of the options' are not looked at: `unknown` finds them.
    """
    values: dict[str, Any] = {}
    faults: list[tuple[str, str]] = []
    for option in options:
        text = texts.get(option.name)
        if text is None:
            values[option.name] = option.default
            if option.default is REQUIRED:
                faults.append((option.name, f"missing; it is required: {option.valid_values}."))
            continue
        if len(text) > option.most:
            faults.append((option.name, f"a text of {len(text)} characters is not allowed: at most {option.most} are."))
            continue
        try:
            values[option.name] = _value(option, text.strip())
        except ValueError as error:
            faults.append((option.name, f"{quoted(text, HIDDEN, option.name)} is not allowed: {error}"))
    if faults:
        raise OptionsError(faults)
    return values


def unknown(options: Iterable[Option], names: Iterable[str]) -> tuple[str, ...]:
    """Returns those of `names` that none of `options` has."""
    known = {option.name for option in options}
    return tuple(name for name in names if name not in known)


def meant(name: str, options: Iterable[Option]) -> str | None:
    """Returns the option that `name` is most likely a typo of; None if it is like none."""
    return next(iter(difflib.get_close_matches(name, [option.name for option in options], n=1)), None)


def _value(option: Option, text: str) -> Any:
    value = _of_kind(option, text)
    if option.allowed:
        each = [text] if option.kind != "LIST" else value
        allowed = [word.lower() for word in option.allowed] if option.any_case else option.allowed
        if any((word.lower() if option.any_case else word) not in allowed for word in each):
            raise ValueError(f"allowed is {option.valid_values}.")
    wrong = option.check(value) if option.check else None
    if wrong:
        raise ValueError(wrong)
    return value


def _of_kind(option: Option, text: str) -> Any:
    match option.kind:
        case "BOOLEAN":
            if text.lower() not in {"true", "false"}:
                raise ValueError("allowed is true or false.")
            return text.lower() == "true"
        case "INT" | "LONG":
            bound = _BOUNDS[option.kind]
            if not _WHOLE.fullmatch(text) or not -bound <= int(text) < bound:
                raise ValueError(f"allowed is a whole number from {-bound} to {bound - 1}.")
            return int(text)
        case "DOUBLE":
            return float(text)
        case "LIST":
            return [part.strip() for part in text.split(",")] if text else []
    return text


PLUGIN_VERSIONS: Final = "plugin versions"
"""What `connector.plugin.version` and its like belong to (KIP-891)."""


def not_available(what: str) -> str:
    """Returns the sentence for a key that belongs to `what`."""
    return f"not available yet in keyfold {_installed_version()}: {what}. Remove the key."


def _installed_version() -> str:
    """Returns keyfold's version, or `(not installed)` when it runs from a bare folder."""
    try:
        return version("keyfold")
    except PackageNotFoundError:
        return "(not installed)"

"""Settings as texts: what a JSON file gives, and what is shown again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.config.faults import Fault
from connectors.config.key import Key


def as_texts(raw: Any) -> tuple[dict[str, str], tuple[Fault, ...]]:
    """The texts of a JSON object's values (1 and "1" are the same, as in Connect), and faults for what is no text."""
    if not isinstance(raw, Mapping):
        return {}, (Fault("", "must be a JSON object of settings, or one with name and config."),)
    faults = tuple(Fault(str(name), _refusal(value)) for name, value in raw.items() if not _is_scalar(value))
    return {str(name): _as_text(value) for name, value in raw.items() if _is_scalar(value)}, faults


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | bool | int | float)


def _as_text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _refusal(value: object) -> str:
    if value is None:
        return "null is not allowed; leave the key out for its default."
    if isinstance(value, list):
        return 'a list is not allowed; write one text with commas: "a,b".'
    return "an object is not allowed; a value is a text, a number, true or false."


def effective(keys: Mapping[str, Key], given: Mapping[str, str]) -> dict[str, str | None]:
    """`given` with the defaults of `keys` around it, in the order of `keys`."""
    return {name: given.get(name, key.default) for name, key in keys.items()} | dict(given)

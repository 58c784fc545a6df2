"""Keeps what placeholders stand for out of what is said against the settings of a class.

A class says what is wrong with the value that it is given. Of a setting with a placeholder only that is said which
does not depend on the value: the text of the file, and what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from compactor.secret_forms import HIDDEN
from connectors.chain.connect_settings import OTHER_NAMES, name_in_file
from connectors.credentials import quoted
from connectors.errors import ConfigError
from connectors.options import Option, OptionsError
from connectors.placeholders import SecretError, has_placeholder

NOT_SHOWN: Final = "what a placeholder stands for is not shown, nor what is wrong with it."


@contextmanager
def values_hidden(texts: Mapping[str, str], options: Iterable[Option]) -> Iterator[None]:
    """Keeps the values of placeholders out of the errors of the block.

    `texts` are a class's settings as a file has them. A fault of a setting with a placeholder says what is
    allowed. Any other fault is said as it is only if the settings with placeholders are passwords, which no class
    quotes. Raises OptionsError, ValueError as the block does.
    """
    written = {name: text for name, text in texts.items() if has_placeholder(text)}
    if not written:
        yield
        return
    known = {option.name: option for option in options}
    try:
        yield
    except OptionsError as error:
        raise OptionsError([_fault(fault, texts, written, known) for fault in error.faults]) from None
    except (ConfigError, ValueError) as error:
        if isinstance(error, SecretError) or not _are_quoted(written, known):
            raise
        raise ConfigError(f"the settings do not fit: {NOT_SHOWN} {places_of(written)}") from None
    except Exception as error:  # noqa: BLE001  # whatever a class meets in a value may quote it
        raise ConfigError(
            f"the settings cannot be used ({type(error).__name__}): {NOT_SHOWN} {places_of(written)}"
        ) from None


def _fault(
    fault: tuple[str, str], texts: Mapping[str, str], written: Mapping[str, str], known: Mapping[str, Option]
) -> tuple[str, str]:
    name, text = fault
    own = written.get(name_in_file(name, texts))
    if own is not None:
        allowed = known[name].valid_values if name in known else "another value"
        return name, f"{quoted(own, HIDDEN, name)} is not allowed: allowed is {allowed}; {NOT_SHOWN}"
    if text.startswith("missing;") or not _are_quoted(written, known):
        return fault
    return name, f"does not fit: {NOT_SHOWN} {places_of(written)}"


def _are_quoted(written: Iterable[str], known: Mapping[str, Option]) -> bool:
    """Returns whether an error may quote any of these settings: all but passwords."""
    names = (OTHER_NAMES.get(name, name) for name in written)
    return any(name in known and known[name].kind != "PASSWORD" for name in names)


def places_of(settings: Iterable[str]) -> str:
    """Returns the sentence that names the settings in which placeholders stand."""
    return f"Placeholders are in {', '.join(settings)}."

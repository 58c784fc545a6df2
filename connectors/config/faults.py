"""Faults of a configuration file: collected, then raised together."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from connectors.config.secrets import without_urls_secrets
from connectors.errors import ConfigError


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong: the key it is about ("" = the file as a whole) and a sentence."""

    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.key}: {self.text}" if self.key else self.text


class FaultyConfigError(ConfigError):
    """A file with faults: `file` and `faults` hold them; the message has one line for each."""

    def __init__(self, file: str, faults: Iterable[Fault]) -> None:
        self.file = file
        self.faults = tuple(Fault(fault.key, without_urls_secrets(fault.text)) for fault in faults)
        lines = "\n".join(f"{file}: {fault}" for fault in self.faults)
        super().__init__(lines, "")

    def __reduce__(self) -> tuple[type[FaultyConfigError], tuple[str, tuple[Fault, ...]]]:
        return type(self), (self.file, self.faults)

    def of(self, file: str) -> FaultyConfigError:
        """The same faults, told of `file`."""
        return FaultyConfigError(file, self.faults)


def raise_all(errors: Iterable[FaultyConfigError]) -> None:
    """Raises one ConfigError with the faults of all `errors`, in their order; does nothing when there are none."""
    found = tuple(errors)
    if len(found) == 1:
        raise found[0]
    if found:
        raise ConfigError("\n".join(error.message for error in found))

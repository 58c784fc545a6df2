"""Whether a name, and a value that needs no other file, is one of a Kafka client's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from connectors.config import translate
from connectors.config.faults import Fault
from connectors.config.librdkafka import ClientKind
from connectors.config.parse import shown
from connectors.config.secrets import has_placeholder


def is_client_setting(name: str) -> bool:
    """True for a name that some Kafka client has."""
    return translate.is_known(name)


def name_faults(kind: ClientKind, settings: Mapping[str, str]) -> tuple[Fault, ...]:
    """Faults of one family of settings taken by itself: names, values without placeholders, names given twice."""
    twice = translate.doubled(kind, settings)
    doubled = (Fault(name, f"says the same as {other}; remove one.") for name, other in twice.items())
    single = (fault for name, text in settings.items() if name not in twice for fault in _faults(kind, name, text))
    return (*doubled, *single)


def _faults(kind: ClientKind, name: str, text: str) -> Iterator[Fault]:
    try:
        translate.target(kind, name)
    except ValueError as error:
        yield Fault(name, str(error))
        return
    if not has_placeholder(text):
        try:
            translate.settings(kind, name, text)
        except ValueError as error:
            yield Fault(name, f"{shown(name, text)} {error}")

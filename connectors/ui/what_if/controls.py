"""The settings that the page can try: what is shown of each, and what a person has chosen of them. Pure.

A setting has a field to type in, and a slider with some stops. What was typed counts if it differs from what the page
had shown; else the slider, if it stands elsewhere. So both work without JavaScript.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from compactor.settings import FOREVER
from connectors.config.connector import ConnectorConfig
from connectors.config.definitions import definitions, documentation
from connectors.config.errors import Fault
from connectors.ui.what_if import durations

_MINUTE: Final = 60_000
_HOUR: Final = 3_600_000
_DAY: Final = 86_400_000
SLIDER: Final = ".slider"
SHOWN: Final = ".shown"
SCOPE: Final = "compaction.scope"
SCOPES: Final = ("partition", "topic")


class Control(Struct, frozen=True):
    """A setting with a slider: its key, its label, the stops as a config has them, and whether these are ms."""

    key: str
    label: str
    stops: tuple[str, ...]
    is_duration: bool = True

    def text(self, value: str) -> str:
        """Returns a value of a config as a person writes it; one that is none stays as it is."""
        return durations.written(int(value)) if self.is_duration and value.isascii() and value.isdigit() else value

    def value(self, text: str) -> str:
        """Returns the value of a config for what a person has written; a text that is none stays, and is refused."""
        ms = durations.read(text) if self.is_duration else None
        return text.strip() if ms is None else str(ms)

    def place(self, value: str) -> int:
        """Returns the number of the last stop that is not above `value`, 0 if all are."""
        number = _number(value)
        return max((at for at, stop in enumerate(self.stops) if float(stop) <= number), default=0)


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0


def _stops(*ms: int) -> tuple[str, ...]:
    return tuple(map(str, ms))


CONTROLS: Final = (
    Control(
        "min.compaction.lag.ms",
        "Least lag",
        _stops(0, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 6 * _HOUR, _DAY, 3 * _DAY, 7 * _DAY, 30 * _DAY),
    ),
    Control(
        "max.compaction.lag.ms",
        "Greatest lag",
        _stops(_MINUTE, 10 * _MINUTE, _HOUR, 6 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY, 90 * _DAY, FOREVER),
    ),
    Control(
        "delete.retention.ms",
        "Tombstones stay for",
        _stops(0, 10 * _MINUTE, _HOUR, 6 * _HOUR, _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 30 * _DAY, 90 * _DAY),
    ),
    Control(
        "min.cleanable.dirty.ratio",
        "Dirty ratio",
        tuple(f"{number / 20:g}" for number in range(21)),
        is_duration=False,
    ),
)


class ShownControl(Struct, frozen=True):
    """A control as the page shows it; `place` is the stop of its slider, `words` are those of all stops."""

    key: str
    label: str
    meaning: str
    text: str
    place: int
    last: int
    words: tuple[str, ...]
    present: str
    is_changed: bool
    is_refused: bool


def shown_controls(
    config: ConnectorConfig, chosen: Mapping[str, str], refused: Mapping[str, str]
) -> tuple[ShownControl, ...]:
    """Returns the controls of a connector with `config`, if `chosen` are tried and some of them `refused`."""
    present, meanings = present_values(config), documentation(ConnectorConfig)
    fields = definitions(ConnectorConfig)
    return tuple(
        ShownControl(
            key=each.key,
            label=each.label,
            meaning=meanings[fields[each.key].field],
            text=each.text(value),
            place=each.place(value),
            last=len(each.stops) - 1,
            words=tuple(map(each.text, each.stops)),
            present=each.text(present[each.key]),
            is_changed=value != present[each.key],
            is_refused=each.key in refused,
        )
        for each in CONTROLS
        for value in [chosen.get(each.key, present[each.key])]
    )


def present_values(config: ConnectorConfig) -> dict[str, str]:
    """Returns by key what the connector has of these settings, as texts of a config."""
    return {
        "min.compaction.lag.ms": str(config.min_compaction_lag_ms),
        "max.compaction.lag.ms": str(config.max_compaction_lag_ms),
        "delete.retention.ms": str(config.delete_retention_ms),
        "min.cleanable.dirty.ratio": f"{config.min_cleanable_dirty_ratio:g}",
        SCOPE: config.scope,
    }


def chosen_changes(config: ConnectorConfig, fields: Mapping[str, str]) -> dict[str, str]:
    """Returns by key what the `fields` of a form change of `config`; not checked."""
    present = present_values(config)
    wanted = {each.key: _chosen(each, fields, present[each.key]) for each in CONTROLS}
    wanted[SCOPE] = fields.get(SCOPE, present[SCOPE]).strip().lower()
    return {key: value for key, value in wanted.items() if value != present[key]}


def written_changes(changes: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns keys and values of checked changes as a person writes them."""
    by_key = {each.key: each for each in CONTROLS}
    return tuple((key, by_key[key].text(value) if key in by_key else value) for key, value in changes.items())


def unread_durations(changes: Mapping[str, str]) -> tuple[Fault, ...]:
    """Returns a fault, with how to write it, for each duration of `changes` that is none."""
    unread = (
        (each.key, changes[each.key])
        for each in CONTROLS
        if each.is_duration and each.key in changes and durations.read(changes[each.key]) is None
    )
    return tuple(Fault(key, durations.FORMS, value=text) for key, text in unread)


def _chosen(control: Control, fields: Mapping[str, str], present: str) -> str:
    shown = fields.get(control.key + SHOWN, control.text(present))
    typed = fields.get(control.key, shown)
    if typed.strip() != shown.strip():
        return control.value(typed)
    place = fields.get(control.key + SLIDER, "")
    is_place = place.isascii() and place.isdigit() and len(place) <= len(str(len(control.stops)))
    if is_place and int(place) < len(control.stops) and int(place) != control.place(control.value(shown)):
        return control.stops[int(place)]
    return control.value(shown)

"""Reads from a form which dead letters are meant to go back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from compactor.digits import whole
from connectors.errors import UsageError
from connectors.operations.redrive.letters import LetterFilter
from connectors.operations.redrive.plan import RedriveSelection
from connectors.rejection import Stage

MOST_LETTERS: Final = 10_000
"""Letters that one run of the page sends back: some seconds, and a dry run tries all of them. More take more runs, or
`keyfold dlq redrive`, which has no bound."""
MOST_REDRIVES: Final = 3
"""As `keyfold dlq redrive` has it: how often a record may have come back before it is left."""
_MOST_COMING_BACK: Final = 1_000
STAGES: Final = tuple(stage.value for stage in Stage)


class LetterChoice(Struct, frozen=True):
    """Which letters a run is about, and how many of them at most; `until`: `redrive` takes it."""

    selection: RedriveSelection
    limit: int = MOST_LETTERS
    until: Mapping[int, int] | None = None


def letter_filter(fields: Mapping[str, str]) -> LetterFilter:
    """Returns the filter of a query or a form; what is empty filters nothing. Raises UsageError."""
    stage = fields.get("stage", "").strip() or None
    if stage is not None and stage not in STAGES:
        raise UsageError(f"There is no stage {stage:.100}.", f"Choose one of {', '.join(STAGES)}.")
    return LetterFilter(fields.get("topic", "").strip() or None, stage, fields.get("class", "").strip() or None)


def letter_choice(fields: Mapping[str, str]) -> LetterChoice:
    """Returns what a form chooses. Raises UsageError."""
    selection = RedriveSelection(
        _number(fields, "redrives", MOST_REDRIVES, _MOST_COMING_BACK, "does not say how often a record may come back"),
        letter_filter(fields),
        unnamed=fields.get("unnamed") == "yes",
        once=fields.get("every") != "yes",
    )
    return LetterChoice(selection, _number(fields, "limit", MOST_LETTERS, MOST_LETTERS, "is no number of letters"))


def _number(fields: Mapping[str, str], name: str, default: int, most: int, fault: str) -> int:
    text = fields.get(name, "").strip()
    number = whole(text, most) if text else default
    if not number:
        raise UsageError(f'"{text:.100}" {fault}.', f"Write a whole number from 1 to {most:,}.")
    return number

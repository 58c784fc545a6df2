"""The text that a run keeps of why a record was rejected (`rejected` of compactor/model/record.py).

If a converter or a transform has refused a record, the text begins with the stage and the class:
`VALUE_CONVERTER keyfold.Avro DataError: schema 7 does not exist`. Any other text is the reason alone: the record could
not be folded, or was written by an earlier release.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from decimal import InvalidOperation
from enum import Enum
from itertools import islice
from traceback import extract_tb
from typing import Any, Final

from msgspec import Struct

from connectors.machine_errors import refuse_machine

SINK_CLASS: Final = "keyfold.CompactedTopic"


class Stage(Enum):
    """The stage at which a record went wrong (`org.apache.kafka.connect.runtime.errors.Stage`)."""

    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    TRANSFORMATION = "TRANSFORMATION"
    TASK_PUT = "TASK_PUT"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"


class Rejection(Struct, frozen=True):
    """Why one record was rejected. `class_name` is that of the file: of the converter, transform or predicate.

    `exception` is the error's class, without its module; empty if no error was raised.
    """

    stage: Stage
    class_name: str
    exception: str
    message: str

    def __str__(self) -> str:
        return f"{self.stage.value} {self.class_name} {self.exception}: {self.message}"


_STAGED: Final = re.compile(rf"({'|'.join(stage.value for stage in Stage)}) (\S+) (\w+): (.*)", re.DOTALL)


def rejection_of(text: str) -> Rejection:
    """Reads what `str(rejection)` has written, or takes `text` for the reason why a record could not be folded."""
    match = _STAGED.fullmatch(text)
    if match is None:
        return Rejection(Stage.TASK_PUT, SINK_CLASS, "", text)
    stage, class_name, exception, message = match.groups()
    return Rejection(Stage(stage), class_name, exception, message)


_BRIEF: Final = 100
"""Characters of a value in a message."""
_SAID: Final = 200
"""Characters of what a library says of an error."""
_REASONS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (RecursionError, "it is nested too deep"),
    (EOFError, "it ends too early"),
    (IndexError, "it has a number where its schema has nothing"),
    (OverflowError, "a number or date in it is too large"),
    (InvalidOperation, "a number in it has too large an exponent"),
)
"""What errors of Python and libraries mean for a record, if their own texts say nothing or speak of Python."""


def reason_of(error: BaseException) -> str:
    """Returns why an error of a library was raised, as the end of a sentence: never empty, nor the name of a class.

    Raises MachineError if it says nothing of a record.
    """
    refuse_machine(error)
    known = next((reason for kind, reason in _REASONS if isinstance(error, kind)), None)
    if known is not None:
        return known
    if isinstance(error, KeyError):
        return f"there is no {shown(error.args[0]) if error.args else 'such name'}"
    said = _said(error)
    return said if " " in said and "<class" not in said else _defect(error)


def unexpected(error: BaseException) -> tuple[str, str]:
    """Returns what is said of an error that no step has foreseen, and the next action."""
    if isinstance(error, RecursionError | OverflowError | InvalidOperation):
        return f"The record is not taken: {reason_of(error)}.", "Correct what writes it."
    return f"The record is not taken: {_defect(error)}.", "Report it, with this message and the record."


def _said(error: BaseException) -> str:
    """Returns what an error says, in one line without a period."""
    return " ".join(str(error).split())[:_SAID].removesuffix(".")


def _defect(error: BaseException) -> str:
    """Returns that an error is keyfold's own, the place in the code that raised it, and what it says."""
    frames = extract_tb(error.__traceback__)
    at = f" in {frames[-1].name} (line {frames[-1].lineno} of {_module(frames[-1].filename)})" if frames else ""
    return f"keyfold has met a defect of its own{at}: {type(error).__name__} {_said(error)}".rstrip()


def _module(path: str) -> str:
    """Returns the last two parts of a path: the whole of it would show how a machine keeps its files."""
    return "/".join(path.replace("\\", "/").split("/")[-2:])


def shown(value: object) -> str:
    """Returns the beginning of a value for a message: short, however long or deep the value is."""
    return _Brief().repr(value)[:_BRIEF]


class _Brief(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 3, _BRIEF, _BRIEF

    def repr_int(self, x: int, level: int) -> str:  # noqa: ARG002
        """Returns a number, or how long it is: Python refuses to write those of more than 4,300 digits."""
        bits = x.bit_length()
        return str(x) if bits <= 4 * _BRIEF else f"a whole number of {bits} bits"

    def repr_Decimal(self, x: object, level: int) -> str:  # noqa: ARG002, N802  # reprlib finds it by the class's name
        """Returns the digits alone."""
        text = str(x)
        return text if len(text) <= _BRIEF else f"{text[: _BRIEF // 2]}..."

    def repr_dict(self, x: Mapping[Any, Any], level: int) -> str:
        """Returns the first members: they alone are sorted."""
        return super().repr_dict(dict(islice(x.items(), self.maxdict + 1)), level)

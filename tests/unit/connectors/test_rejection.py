"""The text that a run keeps of a rejected record says where it went wrong."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import pytest

from connectors.chain.conversion import RejectedError
from connectors.rejection import SINK_CLASS, Rejection, Stage, reason_of, rejection_of, shown, unexpected


@pytest.mark.parametrize("message", ["bad magic byte 7", "two\nlines: of it", ""])
def test_a_rejection_is_read_back_from_its_text(message: str) -> None:
    """Whatever the message holds."""
    rejection = Rejection(Stage.VALUE_CONVERTER, "keyfold.Avro", "DataError", message)
    assert rejection_of(str(rejection)) == rejection


def test_a_text_without_a_stage_is_the_reason_itself() -> None:
    """As those of a record without a key, and those that an earlier release has written."""
    assert rejection_of("null key") == Rejection(Stage.TASK_PUT, SINK_CLASS, "", "null key")


ERRORS = [
    StopIteration(),
    AssertionError(),
    KeyError("a"),
    KeyError(),
    IndexError("list index out of range"),
    EOFError(),
    RecursionError("maximum recursion depth exceeded"),
    OverflowError("Python int too large to convert to C int"),
    InvalidOperation([InvalidOperation]),
    ValueError("Exceeds the limit (4300 digits) for integer string conversion"),
    TypeError("NoneType"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_no_reason_is_empty_or_the_name_of_an_error(error: Exception) -> None:
    """Nor speaks of Python's classes: what the operator reads is a sentence."""
    said, (message, action) = reason_of(error), unexpected(error)
    for text in (said, message):
        assert len(text.split()) >= 3
        assert "<class" not in text
        assert text.strip(". ") != type(error).__name__
    assert message.endswith(".")
    assert action


def test_a_defect_is_said_with_its_place() -> None:
    """So that a report of it says all that is needed; of the machine's folders it says nothing."""

    def stumbles() -> None:
        next(iter(()))

    with pytest.raises(StopIteration) as raised:
        stumbles()
    message, action = unexpected(raised.value)
    assert "in stumbles (line " in message
    assert "of connectors/test_rejection.py): StopIteration." in message
    assert "Report it" in action


def test_any_error_of_a_step_becomes_the_reason_of_its_record() -> None:
    """Every error that a converter or transform lets through goes this one way; its text can be stored."""
    for error in (*ERRORS, ValueError("half a pair: \ud800 is no text")):
        said = RejectedError(Stage.TRANSFORMATION, "T", error).rejection.message
        assert len(said.split()) >= 5
        assert said.encode()


def test_values_in_messages_are_short() -> None:
    """However long or deep they are; Python refuses to write whole numbers of more than 4,300 digits."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    many = {str(number): number for number in range(100_000)}
    for value in (10**5_000, "x" * 1_000_000, many, deep, Decimal("9" * 100_000), b"x" * 1_000_000, [10**5_000]):
        assert 0 < len(shown(value)) <= 100
    assert [shown(one) for one in (1, "a", {"a": [1]}, Decimal("1.50"), None)] == [
        "1",
        "'a'",
        "{'a': [1]}",
        "1.50",
        "None",
    ]

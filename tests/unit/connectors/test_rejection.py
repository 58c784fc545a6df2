"""The text that a run keeps of a rejected record says where it went wrong."""

from __future__ import annotations

import pytest

from connectors.rejection import SINK_CLASS, Rejection, Stage, rejection_of


@pytest.mark.parametrize("message", ["bad magic byte 7", "two\nlines: of it", ""])
def test_a_rejection_is_read_back_from_its_text(message: str) -> None:
    """Whatever the message holds."""
    rejection = Rejection(Stage.VALUE_CONVERTER, "keyfold.Avro", "DataError", message)
    assert rejection_of(str(rejection)) == rejection


def test_a_text_without_a_stage_is_the_reason_itself() -> None:
    """As those of a record without a key, and those that an earlier release has written."""
    assert rejection_of("null key") == Rejection(Stage.TASK_PUT, SINK_CLASS, "", "null key")

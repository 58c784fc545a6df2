from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.compare import Record, differences

ONE = Record(3, b"k", b"v", (("h", None), ("h", b"")), 7)
OTHER = Record(5, b"l", None, (), 9)


def test_equal_sides_have_no_differences() -> None:
    """The same records in the same order are no difference."""
    assert differences({"a": [ONE, OTHER], "b": [ONE, OTHER]}) == []


@pytest.mark.parametrize(
    "change",
    [
        {"offset": 4},
        {"key": b""},
        {"value": b""},
        {"value": None},
        {"timestamp_ms": 8},
        {"headers": ()},
        {"headers": (("h", b""), ("h", None))},
        {"headers": (("h", None),)},
        {"headers": (("h", b""), ("h", b""))},
    ],
)
def test_every_field_counts(change: dict[str, Any]) -> None:
    """One field of one record that is not the same is a difference, and its line shows both."""
    changed = ONE._replace(**change)
    wrong = differences({"a": [ONE, OTHER], "b": [changed, OTHER]})
    assert wrong
    assert all(str(one) in "\n".join(wrong) for one in (ONE, changed))


@pytest.mark.parametrize("records", [[ONE], [OTHER], [OTHER, ONE], [ONE, OTHER, OTHER], []])
def test_missing_doubled_and_disordered_records_count(records: list[Record]) -> None:
    """A record too few or too many, or out of order, is a difference."""
    assert differences({"a": [ONE, OTHER], "b": records})

"""What a machine lacks is no property of a record: none is rejected for it, and the connector is tried again."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
import pytest

from connectors.chain.chain import TransformStage
from connectors.chain.conversion import Conversion, RejectedError
from connectors.data.growth import Room
from connectors.data.record import ConnectRecord
from connectors.errors import DataError, MachineError
from connectors.rejection import Stage, reason_of

RECORD = ConnectRecord("t", 0, 1, None, None, None, None, {"a": 1}, ())
OF_MACHINE = [
    MemoryError(),
    pa.ArrowMemoryError("malloc of size 64 failed"),
    OSError(errno.EMFILE, "Too many open files"),
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
    RuntimeError("can't start new thread"),
]
OF_RECORD = [
    RecursionError("maximum recursion depth exceeded"),
    OSError(errno.EOVERFLOW, "Value too large for defined data type"),
    TimeoutError("regex timed out"),
    RuntimeError("dictionary changed size during iteration"),
]


class Raising:
    """A transform, a predicate and a converter that raises `error`, or something else because of it."""

    def __init__(self, error: Exception, *, wraps: bool) -> None:
        self._error = error
        self._wraps = wraps

    def _fail(self, *_: object) -> Any:
        if not self._wraps:
            raise self._error
        try:
            raise self._error
        except type(self._error):
            raise DataError("It cannot be read.") from None

    apply = test = to_connect_data = from_connect_data = _fail


def uses(raising: Any) -> dict[str, Callable[[], object]]:
    """Each place at which a record is rejected for what a class raises."""
    reads = Conversion("c", raising, "c", raising, Stage.VALUE_CONVERTER, reads=True, most=100)
    return {
        "transform": lambda: TransformStage("s", raising, None, "", negate=False).of(RECORD),
        "predicate": lambda: TransformStage("s", raising, raising, "p", negate=False).of(RECORD),
        "read": lambda: reads.read("t", [], b"{}"),
        "write": lambda: reads.write("t", [], None, {"a": 1}, Room(0, 1), 100),
        "null": lambda: reads.is_null((), b"{}"),
    }


@pytest.mark.parametrize("wraps", [False, True], ids=["raised", "wrapped"])
@pytest.mark.parametrize("error", OF_MACHINE, ids=repr)
@pytest.mark.parametrize("use", ["transform", "predicate", "read", "write", "null"])
def test_what_the_machine_lacks_rejects_no_record(use: str, error: Exception, *, wraps: bool) -> None:
    """Under errors.tolerance=all the record would be lost to a dead letter for it."""
    with pytest.raises(MachineError, match="The machine lacks") as raised:
        uses(Raising(error, wraps=wraps))[use]()
    assert raised.value.retriable


@pytest.mark.parametrize("error", OF_RECORD, ids=repr)
@pytest.mark.parametrize("use", ["transform", "predicate", "read", "write"])
def test_what_a_record_breaks_rejects_it(use: str, error: Exception) -> None:
    """It would break again whenever it is read."""
    with pytest.raises(RejectedError):
        uses(Raising(error, wraps=False))[use]()


@pytest.mark.parametrize("error", OF_MACHINE, ids=repr)
def test_a_converter_gives_no_reason_for_what_the_machine_lacks(error: Exception) -> None:
    """It would be kept as an error of the schema, for all records that name it."""
    with pytest.raises(MachineError):
        reason_of(cast("BaseException", error))

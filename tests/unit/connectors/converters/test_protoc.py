"""Protoc is a process, which is waited for within limits."""

from __future__ import annotations

import time

import pytest

from connectors.converters.protobuf import files
from connectors.converters.protobuf.files import compiled
from connectors.data.kept import Refusals
from connectors.data.pace import limited
from connectors.errors import DataError, PortionLateError
from connectors.registry.patience import Patience
from tests.support.clocks import ManualClock
from tests.support.memory.schema_registry import MemoryRegistry
from tests.unit.connectors.converters.test_protobuf import ORDER, add, converter, framed


@pytest.fixture
def protoc_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PROTOC", "import time; time.sleep(60)")


@pytest.mark.usefixtures("protoc_hangs")
def test_protoc_is_waited_for_as_long_as_the_portion_may_take() -> None:
    """Its records are read apart then, so that no other connector waits; the schema is tried there again."""
    memory = MemoryRegistry()
    made, number = converter(memory), add(memory)
    patience = Patience(total_s=0.3)
    made.wait_with(patience)
    began = time.monotonic()
    for _ in range(2):
        with pytest.raises(PortionLateError), limited(patience.check):
            made.to_connect_data("t", [], framed(number, b""))
    assert time.monotonic() - began < 10


@pytest.mark.usefixtures("protoc_hangs")
def test_a_stop_ends_protoc() -> None:
    """Nobody waits for the rest of its time."""
    patience = Patience(stopped=lambda: True)
    with pytest.raises(PortionLateError), limited(patience.check):
        compiled(ORDER, {})


@pytest.mark.usefixtures("protoc_hangs")
def test_a_schema_that_takes_protoc_long_is_refused_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times as long as that took: records that name it again and again cost a tenth of the time."""
    monkeypatch.setattr(files, "COMPILED_S", 0.5)
    clock = ManualClock()
    refusals = Refusals(clock)

    def compile_it() -> None:
        clock.advance(20_000)
        compiled(ORDER, {})

    with pytest.raises(DataError, match="takes protoc more than"):
        refusals.of(1, compile_it)
    clock.advance(199_000)
    with pytest.raises(DataError, match="takes protoc more than"):
        refusals.of(1, lambda: None)
    clock.advance(2_000)
    refusals.of(1, lambda: None)

"""Protoc is a process, which is waited for within limits."""

from __future__ import annotations

import time

import pytest

from connectors.converters.protobuf import files
from connectors.converters.protobuf.files import Protoc, compiled
from connectors.data.kept import Refusals
from connectors.data.pace import limited
from connectors.errors import CompilerError, DataError, PortionLateError
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


def test_a_schema_that_takes_protoc_long_is_refused_for_longer() -> None:
    """Ten times as long as that took: records that name it again and again cost a tenth of the time."""
    ended = Protoc("import os, signal; os.kill(os.getpid(), signal.SIGXCPU)")
    clock = ManualClock()
    refusals = Refusals(clock)

    def compile_it() -> None:
        clock.advance(20_000)
        compiled(ORDER, {}, ended)

    with pytest.raises(DataError, match="takes protoc more than"):
        refusals.of(1, compile_it)
    clock.advance(199_000)
    with pytest.raises(DataError, match="takes protoc more than"):
        refusals.of(1, lambda: None)
    clock.advance(2_000)
    refusals.of(1, lambda: None)


SYSTEM = "import os, signal, sys, time"


@pytest.mark.parametrize(
    ("protoc", "reason"),
    [
        (Protoc("raise SystemExit(1)"), "it refuses any schema"),
        (Protoc(f"{SYSTEM}; os.kill(os.getpid(), signal.SIGKILL)"), "it was ended by signal 9"),
        (Protoc(f"{SYSTEM}; open(sys.argv[-2], 'w'); sys.exit(1)"), "what it has compiled cannot be written"),
        (Protoc(f"{SYSTEM}; time.sleep(60)", waited_s=0.3), "it was not over within 0.3 s"),
        (Protoc(folder="/nothing/there"), "No such file or directory"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_a_machine_without_room_makes_no_error_of_a_record(protoc: Protoc, reason: str) -> None:
    """The record would be let go, or be a dead letter, as the disk of TMPDIR is full or memory is short."""
    with pytest.raises(CompilerError, match=f"Protoc cannot be run on this machine: {reason}"):
        compiled(ORDER, {}, protoc)


@pytest.mark.parametrize("name", ["a" * 300, "main.proto/b", "google", "\udc80"])
def test_a_name_that_no_file_can_have_is_an_error_of_the_record(name: str) -> None:
    """Whoever registers the schema chooses it."""
    with pytest.raises(DataError):
        compiled(f'{ORDER}\nimport "x";', {name: ORDER})


@pytest.mark.parametrize("name", ["out/x.proto", "said/x.proto"])
def test_a_registry_may_give_a_file_any_name(name: str) -> None:
    """None stands for what protoc has written: its records would never be read, and never be let go either."""
    assert compiled(f'{ORDER}\nimport "{name}";', {name: 'syntax = "proto3";'}).message((0,)).name == "Order"
    with pytest.raises(DataError, match="is no Protobuf"):
        compiled("message {", {name: 'syntax = "proto3";'})


def test_a_schema_that_is_wrong_is_an_error_of_the_record() -> None:
    """Another one is compiled meanwhile."""
    with pytest.raises(DataError, match="is no Protobuf"):
        compiled("message {", {})

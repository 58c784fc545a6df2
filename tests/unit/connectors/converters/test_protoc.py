"""Protoc is a process, which is waited for within limits."""

from __future__ import annotations

import errno
import time
from unittest.mock import Mock

import pytest

from connectors.converters.protobuf import files
from connectors.converters.protobuf.files import compiled
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


def test_a_schema_that_takes_protoc_long_is_refused_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times as long as that took: records that name it again and again cost a tenth of the time."""
    monkeypatch.setattr(files, "PROTOC", "import os, signal; os.kill(os.getpid(), signal.SIGXCPU)")
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


@pytest.mark.parametrize(
    ("protoc", "reason"),
    [
        ("raise SystemExit(1)", "it refuses any schema"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "it was ended by signal 9"),
        ("open(sys.argv[-2], 'w').close(); raise SystemExit(1)", "what it has compiled cannot be written"),
        ("time.sleep(60)", "it was not over within 0.3 s"),
    ],
)
def test_a_machine_without_room_makes_no_error_of_a_record(
    monkeypatch: pytest.MonkeyPatch, protoc: str, reason: str
) -> None:
    """The record would be let go, or be a dead letter, as the disk of TMPDIR is full or memory is short."""
    monkeypatch.setattr(files, "WAITED_S", 0.3 if "sleep" in protoc else files.WAITED_S)
    monkeypatch.setattr(files, "PROTOC", f"import os, signal, sys, time; {protoc}")
    memory = MemoryRegistry()
    made, number = converter(memory), add(memory)
    with pytest.raises(CompilerError, match=reason):
        made.to_connect_data("t", [], framed(number, b""))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE, errno.ENOENT, errno.EAGAIN])
def test_what_the_system_refuses_is_no_error_of_a_record(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Room, files and processes are the machine's; once there are some, the schema is compiled."""
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.TemporaryDirectory", Mock(side_effect=OSError(code, "No.")))
        with pytest.raises(CompilerError, match=r"Protoc cannot be run on this machine: No\."):
            compiled(ORDER, {})
    assert compiled(ORDER, {}).message((0,)).name


@pytest.mark.parametrize("name", ["a" * 300, "main.proto/b", "google", "\udc80"])
def test_a_name_that_no_file_can_have_is_an_error_of_the_record(name: str) -> None:
    """Whoever registers the schema chooses it."""
    with pytest.raises(DataError):
        compiled(f'{ORDER}\nimport "x";', {name: ORDER})


def test_a_schema_that_is_wrong_is_an_error_of_the_record() -> None:
    """Another one is compiled meanwhile."""
    with pytest.raises(DataError, match="is no Protobuf"):
        compiled("message {", {})

"""No record and no schema holds the worker: each converter and transform ends soon, in little room, with a reason."""

from __future__ import annotations

import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest

from connectors.converters.names import CONVERTERS, HEADER_CONVERTERS
from connectors.errors import DataError
from connectors.transforms.names import PREDICATES, TRANSFORMS
from tests.support.fuzz.measured import CALL_S, NOISE, ROOM_KIB, check
from tests.support.fuzz.targets import targets

ROOT = Path(__file__).parents[3]
LIMIT_S = 300
"""How long (s) the round may take on a machine that does other work; alone it takes some ten."""


def test_every_converter_and_transform_ends_with_a_value_or_a_reason() -> None:
    """A round with a fixed seed; `make fuzz` goes on for an hour with new ones."""
    command = [sys.executable, "-m", "tests.support.fuzz", "--seed", "0", "--examples", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, f"{done.stdout[-6_000:]}\n{done.stderr[-6_000:]}"


def test_every_class_that_a_file_can_name_is_tried() -> None:
    """A class that is added is tried without anything else being done, or named here with why not."""
    tried = {target.name.partition(" ")[0].partition(".")[0] for target in targets()}
    headers = {target.name.split(" ")[1] for target in targets() if target.name.startswith("header ")}
    transforms = {one.simple for names in (TRANSFORMS, PREDICATES) for one in names.known}
    assert tried >= transforms | {one.java.rpartition(".")[2] for one in CONVERTERS.known}
    assert headers == {one.simple for one in HEADER_CONVERTERS.known}


def _computes(_: object) -> None:
    began = time.thread_time()
    while time.thread_time() - began < CALL_S * NOISE * 1.2:
        pass


def _fills(_: object) -> None:
    assert len(b"x" * (ROOM_KIB * 1_024 * 3)) > 0


def _stumbles(_: object) -> None:
    next(iter(()))


def _says_nothing(_: object) -> None:
    raise DataError("")


def _says_a_class(_: object) -> None:
    raise DataError("This is no JSON: KeyError.")


@pytest.mark.parametrize("call", [_computes, _stumbles, _says_nothing, _says_a_class])
def test_the_measure_finds_what_it_is_for(call: object) -> None:
    """What computes too long, or is refused without a reason."""
    with pytest.raises(AssertionError):
        check("a call", call, None)  # type: ignore[arg-type]


def test_the_measure_finds_what_takes_too_much_room() -> None:
    """In a process of its own, as `make fuzz` has: the peak of this one may be higher than what the call takes."""
    module = "tests.unit.connectors.test_hostile_records"
    program = f"from {module} import _fills, check\ncheck('a call', _fills, None)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "AssertionError" in done.stderr


def test_the_measure_takes_what_is_refused_with_a_reason() -> None:
    """And what is quick."""

    def refuses(_: object) -> None:
        raise DataError("The number is too large.")

    check("a call", refuses, None)
    check("a call", lambda _: Decimal(1), None)

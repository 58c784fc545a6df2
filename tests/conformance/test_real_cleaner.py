"""Kafka's own cleaner and keyfold's fold on the same records: what both keep is compared record for record.

CONFORMANCE_SEEDS names the workloads: `0-199`, or `17` for one alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import pytest

from tests.conformance.compare import differences
from tests.conformance.expected import survivors
from tests.conformance.side_by_side import RETENTION_MS, WITH_TOMBSTONES, Compacted, SideBySide
from tests.conformance.workload import DOCUMENTATION, Operation, generate

_AT_ONCE: Final = 51
"""Workloads of which all topics are filled before anything is waited for."""

_FIRST, _, _LAST = os.environ.get("CONFORMANCE_SEEDS", "0-9").partition("-")
SEEDS: Final = range(int(_FIRST), int(_LAST or _FIRST) + 1)

Find: TypeAlias = Callable[[str, str], Compacted]

pytestmark = pytest.mark.timeout(500)  # the first test of a batch waits for all of it


@pytest.fixture(scope="module")
def workloads() -> dict[str, Sequence[Operation]]:
    """The workloads of all seeds, and the documentation's."""
    return {"documentation": DOCUMENTATION, **{f"seed {seed}": generate(seed) for seed in SEEDS}}


@pytest.fixture(scope="module")
def kept(bench: SideBySide, workloads: dict[str, Sequence[Operation]]) -> Find:
    """What both sides keep of a workload; runs the batch that it is in where nobody asked before."""
    names = list(workloads)
    found: dict[tuple[str, str], Compacted] = {}

    def find(name: str, kind: str) -> Compacted:
        if (name, kind) not in found:
            first = names.index(name) // _AT_ONCE * _AT_ONCE
            found.update(bench.run({each: workloads[each] for each in names[first : first + _AT_ONCE]}))
        return found[name, kind]

    return find


@pytest.mark.parametrize("kind", RETENTION_MS)
def test_the_documentations_worked_example(kept: Find, kind: str) -> None:
    """Keys 1001, 1002, 1003, 1002, 1001, 1001 at offsets 1 to 6: records 3, 4 and 6 remain, in that order."""
    both = kept("documentation", kind)
    assert [one.offset for one in both.keyfold] == [0, 3, 4, 6]
    assert differences(both._asdict()) == []


@pytest.mark.parametrize("kind", RETENTION_MS)
@pytest.mark.parametrize("seed", SEEDS)
def test_keyfold_keeps_what_kafkas_cleaner_keeps(
    kept: Find, workloads: dict[str, Sequence[Operation]], seed: int, kind: str
) -> None:
    """Offset, key, value, headers and timestamp of every record that is left are those that Kafka's cleaner leaves."""
    name = f"seed {seed}"
    rule = survivors(workloads[name], tombstones=kind == WITH_TOMBSTONES)
    wrong = differences({**kept(name, kind)._asdict(), "the rule": rule})
    assert not wrong, "\n".join([f"{name}, {kind} (CONFORMANCE_SEEDS={seed} runs it alone):", *wrong])

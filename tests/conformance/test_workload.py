from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import pytest

from tests.conformance.expected import survivors
from tests.conformance.workload import (
    ODD_HEADERS,
    ODD_KEYS,
    PLAIN,
    TRANSACTIONAL,
    End,
    Entry,
    Operation,
    Send,
    generate,
    length,
)

FIXED = [generate(seed) for seed in range(10)]
LEFT = [one for each in FIXED for one in survivors(each, tombstones=True)]


def _open(operations: Sequence[Operation]) -> list[frozenset[str]]:
    """After each operation the producers whose transaction is open."""

    def step(open_: frozenset[str], one: Operation) -> frozenset[str]:
        return open_ - {one.producer} if isinstance(one, End) else open_ | ({one.producer} & TRANSACTIONAL.keys())

    return list(accumulate(operations, step, initial=frozenset[str]()))


def test_a_workload_is_the_same_each_time_and_leaves_nothing_open() -> None:
    """A seed is enough to repeat a failure, and both sides can be compared up to the workload's very end."""
    for seed in range(200):
        operations = generate(seed)
        assert operations == generate(seed), seed
        assert _open(operations)[-1] == frozenset(), seed
        assert len(survivors(operations, tombstones=True)) < length(operations), seed


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("every producer", lambda: {one.producer for each in FIXED for one in each} == {*PLAIN, *TRANSACTIONAL}),
        ("commit and abort", lambda: {o.commit for each in FIXED for o in each if isinstance(o, End)} == {True, False}),
        ("three open at once", lambda: any(len(open_) == 3 for each in FIXED for open_ in _open(each))),
        ("every odd key is left", lambda: {one.key for one in LEFT} >= {*ODD_KEYS}),
        ("every odd header is left", lambda: {one.headers for one in LEFT} >= {(*each,) for each in ODD_HEADERS}),
        ("tombstones are left", lambda: sum(one.value is None for one in LEFT) > 10),
        ("empty values are left", lambda: sum(one.value == b"" for one in LEFT) > 10),
        ("keys without an update", lambda: any((one.key or b"").startswith(b"once-") for one in LEFT)),
        ("times out of order", lambda: [one.timestamp_ms for one in LEFT] != sorted(o.timestamp_ms for o in LEFT)),
    ],
)
def test_the_fixed_workloads_have_everything(what: str, found: Callable[[], bool]) -> None:
    """Among the ten workloads of `make test` is each thing that could be folded wrongly."""
    assert found(), what


def test_the_rule_is_the_last_committed_record() -> None:
    """An aborted record hides nothing; a committed one counts where it was sent, not where its transaction ended."""
    operations: list[Operation] = [
        Send("tx-a", (Entry(b"a", b"0"), Entry(b"b", b"1"))),
        Send("tx-b", (Entry(b"b", b"2"),)),
        Send("none", (Entry(b"a", b"3"), Entry(b"c", None))),
        End("tx-a", commit=True),
        End("tx-b", commit=False),
        Send("tx-b", (Entry(b"d", b"7"),)),
        End("tx-b", commit=True),
    ]
    assert [one.offset for one in survivors(operations, tombstones=True)] == [1, 3, 4, 7]
    assert [one.offset for one in survivors(operations, tombstones=False)] == [1, 3, 7]

"""No record holds Python's lock for long: what answers `/health`, and what publishes, waits for that long at most."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import Final

import pytest

from connectors.chain.chain import Chain
from connectors.chain.spec import chain_spec
from connectors.data.bounds import MOST_READ
from connectors.placeholders import resolve
from tests.unit.connectors.chain.test_chain import batch

HELD_S: Final = 0.45
"""How long a call may keep all other threads waiting, of the processor's time: `/health` may take half a second."""
TRIES: Final = 3
"""On a busy machine the same work takes more of the processor's time."""
SETTINGS: Final = {
    "value.converter": "keyfold.Json",
    "value.converter.schemas.enable": "false",
    "transforms": "k",
    "transforms.k.type": "org.apache.kafka.connect.transforms.Flatten$Value",
}


def distinct_keys(size: int) -> bytes:
    """Returns an object of JSON with the most keys that `size` bytes have: no text takes longer to decode."""
    members = ",".join(f'"{number:x}":0' for number in range(size // 8))
    return ("{" + members[: members.rindex(",", 0, size - 2)] + "}").encode()


def longest_hold(text: bytes) -> float:
    """Returns the most seconds of the processor that a chain takes for `text` while nothing else gets on."""
    records, chain = batch((b"k", text)), Chain(chain_spec(SETTINGS), resolve)
    is_done, is_over = threading.Event(), threading.Event()

    def convert() -> None:
        try:
            chain.apply(records)
        finally:
            is_done.set()
        is_over.wait()  # its clock is read until then

    converting = threading.Thread(target=convert)
    converting.start()
    clock = time.pthread_getcpuclockid(converting.ident or 0)
    looks = [time.clock_gettime(clock)]
    while not is_done.wait(0.0005):
        looks.append(time.clock_gettime(clock))
    looks.append(time.clock_gettime(clock))
    is_over.set()
    converting.join()
    return max(later - earlier for earlier, later in pairwise(looks))


def test_the_largest_json_holds_other_threads_for_a_part_of_a_second() -> None:
    """It is decoded in one call, which no other thread of the process can interrupt."""
    text, held = distinct_keys(MOST_READ), []
    for _ in range(TRIES):
        held.append(longest_hold(text))
        if held[-1] < HELD_S:
            return
    pytest.fail(f"others waited for {held} s")

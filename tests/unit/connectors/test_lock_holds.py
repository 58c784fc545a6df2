"""No record holds Python's lock for long: what answers `/health`, and what publishes, waits for that long at most."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from io import BytesIO
from itertools import pairwise
from typing import Final

import pytest

from connectors.chain.chain import Chain
from connectors.chain.spec import chain_spec
from connectors.converters.avro.large_values import write
from connectors.converters.avro.parsed import parsed_schema
from connectors.data.bounds import MOST_READ
from connectors.placeholders import resolve
from tests.unit.connectors.chain.test_chain import batch

HELD_S: Final = 0.15
"""How long a call may keep all other threads waiting, of the processor's time: `/health` may take half a second, also
on a machine that is busy."""
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


def longest_hold(work: Callable[[], object]) -> float:
    """Returns the most seconds of the processor that `work` takes on a thread while nothing else gets on."""
    is_done, is_over = threading.Event(), threading.Event()

    def run() -> None:
        try:
            work()
        finally:
            is_done.set()
        is_over.wait()  # its clock is read until then

    working = threading.Thread(target=run)
    looks = [0.0]  # it works before `start` returns
    working.start()
    clock = time.pthread_getcpuclockid(working.ident or 0)
    while not is_done.wait(0.0005):
        looks.append(time.clock_gettime(clock))
    looks.append(time.clock_gettime(clock))
    is_over.set()
    working.join()
    return max(later - earlier for earlier, later in pairwise(looks))


def check_holds(work: Callable[[], object]) -> None:
    """Fails unless a try of `work` keeps other threads waiting for less than HELD_S."""
    held = []
    for _ in range(TRIES):
        held.append(longest_hold(work))
        if held[-1] < HELD_S:
            return
    pytest.fail(f"others waited for {held} s")


@pytest.mark.parametrize("around", [b"%s", b'{"payload":%s}'])
def test_the_largest_json_holds_other_threads_for_a_part_of_a_second(around: bytes) -> None:
    """It is decoded in parts: in one call, of 0.25 s, no other thread of the process would get on."""
    text = around % distinct_keys(MOST_READ - len(around))
    records, chain = batch((b"k", text)), Chain(chain_spec(SETTINGS), resolve)
    check_holds(lambda: chain.apply(records))


def test_the_identity_of_the_largest_key_is_found_in_parts() -> None:
    """Its members are decoded, sorted, and held against the usual forms of JSON: 0.6 s in one call each."""
    settings = {"compaction.key.identity": "json", "key.converter": "keyfold.Json"}
    chain = Chain(chain_spec({**settings, "key.converter.schemas.enable": "false"}), resolve)
    texts = distinct_keys(MOST_READ // 2).replace(b":0", b':""')
    records = batch((texts, b"v"))
    check_holds(lambda: chain.apply(records))


def test_a_large_list_is_written_as_avro_in_parts() -> None:
    """In one call, of 0.4 s for these, no other thread of the process would get on."""
    fields = [{"name": f"f{at}", "type": ["null", "long" if at % 2 else "string"]} for at in range(20)]
    row = {"type": "record", "name": "row", "fields": fields}
    rows = [{f"f{at}": at if at % 2 else "x" for at in range(20)} for _ in range(40_000)]
    schema = parsed_schema({"type": "array", "items": row}, {})
    check_holds(lambda: write(BytesIO(), schema, rows))

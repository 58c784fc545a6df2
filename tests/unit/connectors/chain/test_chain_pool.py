"""What a chain has learned of schemas is there for the next reading task, whatever became of the last one."""

from __future__ import annotations

import secrets
import struct
from functools import partial

import httpx
import pytest

from compactor.model.record import TopicPartition
from connectors.chain.chain import Chain
from connectors.chain.chain_pool import borrowed
from connectors.chain.spec import ChainSpec, chain_spec
from connectors.errors import RegistryError
from connectors.registry.schema_registry import SchemaRegistry
from tests.support.clocks import ManualClock
from tests.support.memory.schema_registry import MemoryRegistry
from tests.unit.connectors.chain.test_chain import batch
from tests.unit.connectors.chain.test_key_identity import V1, encoded


@pytest.fixture
def spec() -> ChainSpec:
    """One that no other test has, so that no chain of it is kept."""
    return chain_spec(
        {
            "compaction.key.identity": "avro",
            "key.converter": "keyfold.Avro",
            "key.converter.schema.registry.url": f"http://{secrets.token_hex(4)}:1",
        }
    )


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryRegistry:
    """A registry that all converters ask."""
    memory = MemoryRegistry()
    made = partial(SchemaRegistry, transport=memory, clock=ManualClock())
    monkeypatch.setattr("connectors.converters.registered.SchemaRegistry", made)
    return memory


def test_known_schemas_are_read_after_a_task_has_failed(memory: MemoryRegistry, spec: ChainSpec) -> None:
    """While the registry is away only what is new is held up."""
    known = encoded(V1, memory.add(V1), {"id": 7})
    unknown = struct.pack(">bI", 0, 99) + b"\x0e"
    with borrowed(spec, str, keyed=True) as chain:
        chain.apply(batch((known, b"v")))
    memory.always = httpx.Response(503)
    with pytest.raises(RegistryError), borrowed(spec, str, keyed=True) as chain:
        chain.apply(batch((unknown, b"v")))
    with borrowed(spec, str, keyed=True) as chain:
        found = chain.apply(batch((encoded(V1, 1, {"id": 8}), b"v")))
    assert found["rejected"].to_pylist() == [None]


def test_two_at_a_time_have_a_chain_each_and_start_without_counts(spec: ChainSpec) -> None:
    """A chain is used by one thread; what was dropped before is not of the next range."""
    with borrowed(spec, str, keyed=True) as one, borrowed(spec, str, keyed=True) as other:
        assert one is not other
        one.filtered[TopicPartition("t", 0)] = 3
    with borrowed(spec, str, keyed=True) as again, borrowed(spec, str, keyed=True) as more:
        assert {id(again), id(more)} == {id(one), id(other)}
        assert not again.filtered
        assert not more.filtered


def test_chains_of_the_specs_that_were_used_longest_ago_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more than 256."""
    made: list[Chain] = []
    closed: list[Chain] = []

    def close(chain: Chain) -> None:
        closed.append(chain)

    monkeypatch.setattr(Chain, "close", close)
    for number in range(258):
        with borrowed(chain_spec({"output.topic": f"o{number}"}), str, keyed=True) as chain:
            made.append(chain)
    assert [chain for chain in made if chain in closed] == made[:2]

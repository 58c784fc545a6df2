"""Look-ups share what compares keys: a schema is asked for once, and no connection is left open."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator, Mapping

import pytest

from compactor.model.state import CatalogState
from connectors.chain.idle_identities import IdleIdentities
from connectors.chain.key_identity import KeyIdentity
from connectors.chain.spec import ChainSpec, chain_spec
from connectors.config.connector import ConnectorConfig
from connectors.errors import RegistryError
from connectors.operations.get import get
from tests.support.echo_server import echo_server
from tests.support.memory.storage import MemoryStorage

KEY = struct.pack(">bI", 0, 1) + b"\x0e"
SCHEMA = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}


class CountingRegistry:
    """Has one schema; `asked` has the paths of all requests, `status` is that of the answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.status = 200
        self.url = ""

    def answer(self, path: str, _: Mapping[str, str]) -> tuple[int, bytes]:
        """Answers a request."""
        self.asked.append(path)
        return self.status, json.dumps({"schema": json.dumps(SCHEMA)}).encode()

    def settings(self, identity: str = "avro") -> dict[str, str]:
        """Returns the settings of a connector that asks it."""
        return {
            "compaction.key.identity": identity,
            "key.converter": "keyfold.Avro",
            "key.converter.schema.registry.url": self.url,
        }


@pytest.fixture
def registry() -> Iterator[CountingRegistry]:
    made = CountingRegistry()
    with echo_server(made.answer) as made.url:
        yield made


def test_one_look_up_after_the_other_asks_the_registry_once(registry: CountingRegistry) -> None:
    """Each would make a converter otherwise, which knows no schema and opens connections of its own."""
    settings = {"name": "c", "connector.class": "CompactedTopic", "topics": "t", **registry.settings()}
    config = ConnectorConfig.model_validate(settings)
    state = CatalogState(identity="avro")
    for _ in range(3):
        assert get(MemoryStorage(), config, lambda: state, [KEY], lambda _: ()).absent == (KEY,)
    assert registry.asked == ["/schemas/ids/1"]


def test_what_is_lent_is_nobody_elses(registry: CountingRegistry) -> None:
    """One is used by one thread at a time; the next look-up gets one that is back."""
    identities, spec = IdleIdentities(), chain_spec(registry.settings())
    with identities.lent(spec, str) as first, identities.lent(spec, str) as second:
        assert first is not second
    with identities.lent(spec, str) as again:
        assert again in (first, second)
    with identities.lent(chain_spec(registry.settings("json")), str) as other:
        assert other not in (first, second)


def ask(identities: IdleIdentities, spec: ChainSpec, lent: list[KeyIdentity | None]) -> None:
    """Looks KEY up with what is lent, which goes into `lent`."""
    with identities.lent(spec, str) as identity:
        lent.append(identity)
        assert identity is not None
        assert identity.of((), KEY).identity == b'{"id":7}'


def test_one_that_met_an_error_is_not_lent_again(registry: CountingRegistry) -> None:
    """Its password may have been changed since it was made."""
    identities, spec = IdleIdentities(), chain_spec(registry.settings())
    registry.status = 401
    lent = list[KeyIdentity | None]()
    with pytest.raises(RegistryError):
        ask(identities, spec, lent)
    registry.status = 200
    ask(identities, spec, lent)
    assert lent[0] is not lent[1]


def test_few_are_kept(registry: CountingRegistry) -> None:
    """Those that were used last, of whatever connector."""
    identities = IdleIdentities(most=1)
    specs = [chain_spec({**registry.settings(), "key.converter.connect.meta.data": text}) for text in ("true", "false")]
    with identities.lent(specs[0], str) as first, identities.lent(specs[1], str) as second:
        pass
    with identities.lent(specs[0], str) as kept:
        assert kept is first
    with identities.lent(specs[1], str) as other:
        assert other is not second


def test_keys_that_are_compared_by_their_bytes_need_none() -> None:
    """Nor is anything made for them."""
    with IdleIdentities().lent(chain_spec({}), str) as identity:
        assert identity is None


def test_threads_never_share_one(registry: CountingRegistry) -> None:
    """However many look up at once."""
    identities, spec, start = IdleIdentities(), chain_spec(registry.settings()), threading.Barrier(4)
    lent: list[object] = []

    def look_up() -> None:
        with identities.lent(spec, str) as identity:
            lent.append(identity)
            start.wait(60)

    threads = [threading.Thread(target=look_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(map(id, lent))) == 4

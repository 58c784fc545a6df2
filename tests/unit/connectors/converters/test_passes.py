"""Whatever is decoded of a record or a schema, Python's collector does not go through it again and again meanwhile.

All threads of the worker stand still while it does so: those that publish, and those that answer /health.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from connectors.chain.chain import Chain
from connectors.chain.key_identity import JsonKeyIdentity
from connectors.chain.spec import chain_spec
from connectors.converters.converter import Converter
from connectors.converters.names import CONVERTERS
from connectors.converters.registered import RegisteredConverter
from connectors.data.extended_json import decode_text
from connectors.errors import DataError
from connectors.options import read
from connectors.placeholders import resolve
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
from tests.unit.connectors.chain.test_chain import batch

LISTS = "[" + "[]," * 500_000 + "[]]"
"""Each list is an object that the collector looks at: after every 700 it begins, so 700 times in all."""
MOST_PASSES = 100
AVRO = f'{{"type":"record","name":"r","fields":[],"more":{LISTS}}}'
JSON = f'{{"type":"object","more":{LISTS}}}'


@contextmanager
def passes() -> Iterator[list[int]]:
    """Collects the generation of each pass of the collector in the block."""
    generations: list[int] = []

    def note(phase: str, about: Mapping[str, int]) -> None:
        if phase == "start":
            generations.append(about["generation"])

    gc.callbacks.append(note)
    try:
        yield generations
    finally:
        gc.callbacks.remove(note)


def converter(name: str, **texts: str) -> Converter:
    kind = CONVERTERS.find(name).of.load()
    made: Converter = kind(
        read(kind.OPTIONS, {key.replace("_", "."): text for key, text in texts.items()}), is_key=False
    )
    return made


def registered(name: str, text: str, kind: str) -> Callable[[], Any]:
    """Returns what reads a record of a registered schema."""
    made = converter(name, schema_registry_url="http://a:1")
    assert isinstance(made, RegisteredConverter)
    answer = json.dumps({"schema": text, "schemaType": kind})
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=answer))
    made.registry = SchemaRegistry(registry_settings(made.options), transport=transport)
    return lambda: made.to_connect_data("t", [], b"\0\0\0\0\7{}")


def asked(answer: str) -> Callable[[], Any]:
    """Returns what asks a registry that gives this answer."""
    options = converter("keyfold.Avro", schema_registry_url="http://a:1").options
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=answer))
    return lambda: SchemaRegistry(registry_settings(options), transport=transport).schema(1)


READS: dict[str, Callable[[], Any]] = {
    "a schema's Avro": registered("keyfold.Avro", AVRO, "AVRO"),
    "a schema's JSON Schema": registered("keyfold.JsonSchema", JSON, "JSON"),
    "a registry's answer": asked(f'{{"schema":"x","more":{LISTS}}}'),
    "a payload": lambda: converter("keyfold.Json").to_connect_data(
        "t", [], f'{{"schema":{{"type":"string"}},"payload":{LISTS}}}'.encode()
    ),
    "a schema of Connect's": lambda: converter("keyfold.Json").to_connect_data(
        "t", [], f'{{"schema":{LISTS},"payload":1}}'.encode()
    ),
    "a key": lambda: JsonKeyIdentity().of((), f'{{"b":{LISTS},"a":NaN}}'.encode()),
    "a document of MongoDB": lambda: decode_text(LISTS),
}


@pytest.mark.parametrize("what", READS)
def test_what_is_decoded_is_not_gone_through_again_and_again(what: str) -> None:
    """To decode 8 MiB of lists held all threads for 0.5 s with the collector, and holds them for 0.1 s without."""
    with passes() as generations, suppress(DataError):
        READS[what]()
    assert len(generations) < MOST_PASSES


def test_nor_is_what_a_chain_makes_of_a_long_record() -> None:
    """Its objects are gone with the record; a pass in between goes through all of them."""
    settings = {"compaction.key.identity": "json", "key.converter": "keyfold.Json"}
    chain = Chain(chain_spec({**settings, "key.converter.schemas.enable": "false"}), resolve)
    records = batch((LISTS.encode(), b"v"))
    gc.collect()  # it begins to count anew
    with passes() as generations:
        chain.apply(records)
    assert generations == []

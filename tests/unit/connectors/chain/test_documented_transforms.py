"""docs/transforms.md and docs/converters.md are true: settings, examples, and which classes there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor.model.record import SOURCE
from connectors.chain.chain import Chain
from connectors.chain.connect_settings import NO_EFFECT, NO_EFFECT_WITH_REGISTRY, OTHER_NAMES, PLUGIN_VERSION
from connectors.chain.routing import routed
from connectors.chain.spec import chain_faults, chain_spec, options_of
from connectors.class_names import ClassName
from connectors.config.reference import page
from connectors.converters.json.converter import JsonConverter
from connectors.converters.names import CONVERTERS, HEADER_CONVERTERS
from connectors.transforms.names import PREDICATES, TRANSFORMS
from connectors.transforms.values import REPLACE_NULL

DOCS = Path(__file__).parents[4] / "docs"
PLAIN = {
    "key.converter": "keyfold.Json",
    "key.converter.schemas.enable": "false",
    "value.converter": "keyfold.Json",
    "value.converter.schemas.enable": "false",
}
FENCE = re.compile(r"```json\n(.*?)```", re.DOTALL)
SECTION = re.compile(r"^### (\w+)\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
EXAMPLE = re.compile(r"```json\n(?P<settings>.*?)```\n\n(?P<table>\|.*?\n)(?!\|)", re.DOTALL)
PARTS = ("key", "value", "headers", "topic")
COLUMNS = {f"{before}{name}" for name in PARTS for before in ("", "becomes ")}
ROW = {
    "type": "struct",
    "optional": True,
    "name": "shop.orders.Value",
    "fields": [{"field": name, "type": "int32"} for name in ("id", "n")],
}
SOURCE_FIELDS = [{"field": "table", "type": "string"}, {"field": "ts_ms", "type": "int64"}]
ENVELOPE = {
    "type": "struct",
    "name": "shop.orders.Envelope",
    "fields": [
        {"field": "before", **ROW},
        {"field": "after", **ROW},
        {"field": "op", "type": "string"},
        {"field": "source", "type": "struct", "fields": SOURCE_FIELDS},
    ],
}
JSON_TEXT = {"type": "string", "optional": True, "name": "io.debezium.data.Json", "version": 1}
DOCUMENT_KEY = {"type": "struct", "name": "shop.orders.Key", "fields": [{"field": "id", "type": "string"}]}
DOCUMENT_EVENT = {
    "type": "struct",
    "name": "shop.orders.Envelope",
    "fields": [
        *({"field": name, **JSON_TEXT} for name in ("before", "after")),
        {"field": "op", "type": "string"},
    ],
}
WITH_SCHEMA = {"value.converter.schemas.enable": "true", "value.converter.schema.content": json.dumps(ENVELOPE)}
"""What the page leaves out of the examples of change events."""
WITH_SCHEMAS = {
    "ExtractNewRecordState": WITH_SCHEMA,
    "ExtractNewDocumentState": {
        **{f"{side}.converter.schemas.enable": "true" for side in ("key", "value")},
        "key.converter.schema.content": json.dumps(DOCUMENT_KEY),
        "value.converter.schema.content": json.dumps(DOCUMENT_EVENT),
        **{f"output.{side}.converter": "keyfold.Json" for side in ("key", "value")},
        **{f"output.{side}.converter.schemas.enable": "false" for side in ("key", "value")},
    },
}
"""The same, by transform."""


def _text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def _examples() -> Iterator[tuple[str, dict[str, str], dict[str, str]]]:
    """Yields each row of an example: its class, its settings, and the cells by the columns' names."""
    for name, section in SECTION.findall(_text("transforms.md")):
        for found in EXAMPLE.finditer(section):
            heads, _, *rows = (_cells(line) for line in found["table"].splitlines())
            assert set(heads) <= COLUMNS, heads
            for row in rows:
                yield name, json.loads(found["settings"]), dict(zip(heads, row, strict=True))


def _cells(line: str) -> list[str]:
    return [cell.strip().strip("`") for cell in line.strip("| ").split(" | ")]


EXAMPLES = list(_examples())


@pytest.mark.parametrize("name", ["converters.md", "transforms.md"])
def test_the_tables_of_settings_are_up_to_date(name: str) -> None:
    """They are what `python -m connectors.config.reference` writes."""
    assert page(_text(name)) == _text(name)
    assert "<!-- settings: " in _text(name)


PAGES = [("transforms.md", (TRANSFORMS, PREDICATES)), ("converters.md", (CONVERTERS, HEADER_CONVERTERS))]


@pytest.mark.parametrize(("name", "names"), PAGES, ids=["transforms", "converters"])
def test_every_class_has_a_section(name: str, names: Any) -> None:
    """One with settings has a table of them."""
    text = _text(name)
    for one in (one for kind in names for one in kind.known):
        assert f"### {one.simple}\n" in text, one.simple
        if one.load().OPTIONS:
            assert f"<!-- settings: {one.simple} -->" in text, one.simple


@pytest.mark.parametrize("name", ["converters.md", "transforms.md"])
def test_examples_of_settings_are_valid(name: str) -> None:
    """A connector file takes each of them."""
    found = [json.loads(text) for text in FENCE.findall(_text(name))]
    assert found
    for settings in found:
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}
        assert chain_faults(texts, lambda text: text) == (), settings


@pytest.mark.parametrize(("name", "settings", "cells"), EXAMPLES, ids=[name for name, _, _ in EXAMPLES])
def test_an_example_does_what_the_page_says(name: str, settings: dict[str, str], cells: dict[str, str]) -> None:
    """Key, value, headers and topic become what stands there, are dropped, or are refused."""
    assert name in "".join(settings.values())
    schemas = WITH_SCHEMAS.get(name, {})
    spec = chain_spec({**PLAIN, **schemas, **settings})
    if "becomes topic" in cells:
        assert routed(spec, cells["topic"], str) == cells["becomes topic"]
    if "key" in cells:
        _check(cells, Chain(spec, str).apply(_record(cells)))


def _record(cells: dict[str, str]) -> pa.RecordBatch:
    headers = json.loads(cells.get("headers", "{}"))
    row = {
        "topic": cells.get("topic", "t"), "partition": 0, "offset": 0, "timestamp": 7, "timestamp_type": 0,
        "key": _bytes(cells["key"]), "value": _bytes(cells["value"]),
        "headers": [{"key": key, "value": text.encode()} for key, text in headers.items()],
    }  # fmt: skip
    return pa.RecordBatch.from_pylist([row], schema=SOURCE)


def _bytes(text: str) -> bytes | None:
    return None if text == "null" else text.encode()


def _check(cells: dict[str, str], found: pa.RecordBatch) -> None:
    assert (found.num_rows == 0) is (cells["becomes value"] == "dropped")
    if not found.num_rows:
        return
    (row,) = found.to_pylist()
    assert (row["rejected"] is not None) is (cells["becomes value"] == "error"), row["rejected"]
    if row["rejected"] is None:
        read = [None if row[side] is None else json.loads(row[side]) for side in ("key", "value")]
        assert read == [json.loads(cells["becomes key"]), json.loads(cells["becomes value"])]
        headers = {one["key"]: one["value"].decode() for one in row["headers"] or ()}
        assert headers == json.loads(cells.get("becomes headers", cells.get("headers", "{}")))


STEPS = [one for kind in (TRANSFORMS, PREDICATES) for one in kind.known]


@pytest.mark.parametrize("one", STEPS, ids=lambda one: one.simple)
def test_every_class_has_an_example_that_shows_something(one: ClassName) -> None:
    """A row of it becomes something else: a class that did nothing would not pass."""
    rows = [cells for name, _, cells in EXAMPLES if name == one.simple]
    assert any(cells.get(name) != cells.get(f"becomes {name}", cells.get(name)) for cells in rows for name in PARTS)


@pytest.mark.parametrize("one", STEPS, ids=lambda one: one.simple)
def test_every_option_stands_in_an_example(one: ClassName) -> None:
    """Of its class; one that all transforms share stands in one of them, and one that is refused in none."""
    own = {option.name for option in one.load().OPTIONS if not option.doc.startswith("Not supported")}
    given = [(name, key.split(".", 2)[-1]) for name, settings, _ in EXAMPLES for key in settings]
    shared = {option for _, option in given if option == REPLACE_NULL.name}
    assert own - {option for name, option in given if name == one.simple} - shared == set()


@pytest.mark.parametrize(("name", "section"), SECTION.findall(_text("converters.md")), ids=lambda one: one[:12])
def test_every_converter_has_an_example(name: str, section: str) -> None:
    """With its name in it; the settings that all share have one where the page begins."""
    named = [text for text in FENCE.findall(section) if name in text]
    assert named or "settings: registry" in section


def test_every_option_of_json_stands_in_an_example() -> None:
    """It is what most connectors have."""
    sections = [section for name, section in SECTION.findall(_text("converters.md")) if name == "Json"]
    texts = "".join(text for section in sections for text in FENCE.findall(section))
    assert [one.name for one in JsonConverter.OPTIONS if f".converter.{one.name}" not in texts] == []


def _read_examples() -> Iterator[tuple[str, str, str, str]]:
    for name, section in SECTION.findall(_text("converters.md")):
        for found in EXAMPLE.finditer(section):
            for data, value in (_cells(line) for line in found["table"].splitlines()[2:]):
                yield name, found["settings"], data, value


READ = list(_read_examples())


@pytest.mark.parametrize(("name", "settings", "data", "value"), READ, ids=[name for name, *_ in READ])
def test_bytes_are_read_and_written_as_the_page_says(name: str, settings: str, data: str, value: str) -> None:
    """Both ways."""
    spec = chain_spec(json.loads(settings))
    own = spec.key if "key.converter" in json.loads(settings) else spec.value
    named = CONVERTERS.find(own.name)
    converter = named.of.load()(options_of(own, CONVERTERS, str), is_key=True)
    schema, read = converter.to_connect_data("t", [], bytes.fromhex(data))
    assert (named.of.simple, read) == (name, json.loads(value))
    assert converter.from_connect_data("t", [], schema, read) == bytes.fromhex(data)


def test_what_is_taken_from_connect_s_files_stands_on_the_page() -> None:
    """Each name that is accepted or refused by it."""
    text = _text("converters.md")
    names = (*NO_EFFECT, *NO_EFFECT_WITH_REGISTRY, *OTHER_NAMES, PLUGIN_VERSION)
    assert [name for name in names if f"`{name}`" not in text] == []

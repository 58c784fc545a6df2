"""What many keys are compared by is, bit for bit, what each of them is compared by alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.chain.key_identity import AvroKeyIdentity, JsonKeyIdentity, KeyIdentity
from tests.support.memory.schema_registry import MemoryRegistry
from tests.unit.connectors.chain.test_key_identity import avro, encoded, memory

__all__ = ["avro", "memory"]  # fixtures

ENOUGH: Final = 100
"""More keys than are compared one by one."""


def at_once(identity: KeyIdentity, keys: Sequence[bytes]) -> int:
    """Asserts that columns say of `keys` what each of them is compared by; returns of how many they say it."""
    whole = identity.of_many(pa.array(keys, pa.binary())).whole()
    assert (whole.identity.type, whole.encoding.type) == (pa.binary(), pa.string())
    pairs = zip(whole.identity.to_pylist(), whole.encoding.to_pylist(), strict=True)
    for key, is_known, pair in zip(keys, whole.is_known.tolist(), pairs, strict=True):
        assert pair == (identity.of((), key) if is_known else (None, None)), key
    return int(whole.is_known.sum())


WHOLE: Final = st.integers(-(10**19), 10**19) | st.integers(-3, 12)
TEXTS: Final = st.text(st.sampled_from('ab 0{}[],:"\\\x7fé\n~!'), max_size=5)
SCALARS: Final = WHOLE | TEXTS | st.booleans() | st.none() | st.sampled_from((0.5, 1.0, -0.0, 1e22))
TREES: Final = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('aAbé"7', max_size=2), inner, min_size=1, max_size=4)
    ),
    max_leaves=8,
)
STYLES: Final[st.SearchStrategy[dict[str, Any]]] = st.builds(
    dict,
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" ,", ":"), (",\n", ":\t")]),
    ensure_ascii=st.booleans(),
    sort_keys=st.booleans(),
)


def varied(tree: Any, data: st.DataObject) -> Any:
    """Returns a tree of the same members, with other values."""
    match tree:
        case dict():
            return {name: varied(member, data) for name, member in tree.items()}
        case list():
            return [varied(item, data) for item in tree]
        case bool() | None:
            return tree
        case str():
            return data.draw(TEXTS | st.text("abc", max_size=8))
        case int():
            return data.draw(WHOLE)
        case _:
            return data.draw(SCALARS)


def damaged(key: bytes, data: st.DataObject) -> bytes:
    """Returns a key of which a byte is another one, or missing."""
    at = data.draw(st.integers(0, max(0, len(key) - 1)))
    return (
        key[:at] + data.draw(st.sampled_from((b"", b" ", b"0", b"1", b"-", b'"', b"\\", b"\xff", b","))) + key[at + 1 :]
    )


@settings(max_examples=100, deadline=None)
@given(tree=TREES, style=STYLES, data=st.data())
def test_keys_of_json_are_compared_at_once_as_each_alone(tree: Any, style: dict[str, Any], data: st.DataObject) -> None:
    """Of any members and styles, whole or damaged, the second time with the forms that were met the first time."""
    keys = [json.dumps(varied(tree, data), **style).encode() for _ in range(8)]
    keys += [damaged(data.draw(st.sampled_from(keys)), data) for _ in range(8)]
    keys = data.draw(st.permutations(keys))
    identity = JsonKeyIdentity()
    for _ in range(2):
        at_once(identity, [*keys, *keys[:4] * ENOUGH])


@pytest.mark.parametrize(
    "template",
    [
        '{"id":%d}',
        '{"tenant":%d,"id":"a%d"}',
        ' {"id": %d, "né": [%d, "x%d", null, true]}\n',
        '{"b":"%d","a":{"d":1.50,"c":%d}}',
        "%d",
        '"%d"',
        '{"schema":{"type":"struct","fields":[{"type":"int32","field":"id"}],"name":"K"},"payload":{"id":%d}}',
        '{"7":{"00000000000000000":%d}}',
        '{"a.b*[c]+(d)?|^$":%d,"\\u00e9":"%d"}',
    ],
)
def test_keys_of_one_form_are_compared_at_once(template: str) -> None:
    """All of them, beside others that are no JSON, or have other numbers than whole ones of 18 digits."""
    count = template.count("%d")
    keys = [(template % tuple(number * (at + 1) for at in range(count))).encode() for number in range(-3, 300)]
    assert at_once(JsonKeyIdentity(), keys) == len(keys)
    unusual = [template.replace("%d", text).encode() for text in ("-0", "1.0", "1e3", "01", "9" * 19, "\\u0031", "é")]
    identity = JsonKeyIdentity()
    assert at_once(identity, [*keys, *unusual, b"", b"{", *keys]) >= 2 * len(keys)


def test_a_key_that_has_a_member_twice_has_no_form() -> None:
    """The last one counts, so what a value is compared by is not its own."""
    keys = [b'{"a":%d,"a":%d}' % (number, number % 3) for number in range(ENOUGH)]
    assert at_once(JsonKeyIdentity(), keys) == 0


def test_what_differs_later_becomes_a_hole_of_the_same_form() -> None:
    """Of many values in each key only those differ that were seen to, until others do."""
    text = b'{"a":1,"b":2,"c":3,"d":"x","tenant":%d,"id":%d}'
    identity = JsonKeyIdentity()
    first, second = ([text % (tenant, number) for number in range(ENOUGH)] for tenant in (1, 2))
    assert at_once(identity, first) == ENOUGH
    assert at_once(identity, second) == ENOUGH
    assert at_once(identity, [text % (number, number) for number in range(ENOUGH)]) == ENOUGH


def test_keys_without_a_form_displace_none_that_is_used() -> None:
    """Each such key has another name: some of them are learned with each batch, in vain."""
    identity = JsonKeyIdentity()
    usual = [b'{"id":%d}' % number for number in range(ENOUGH)]
    for turn in range(40):
        odd = [b'{"n%d":[{"o%d":1}]}' % (turn, number) for number in range(ENOUGH)]
        assert ENOUGH <= at_once(identity, [*odd, *usual]) <= ENOUGH + 4


def test_few_keys_are_compared_one_by_one() -> None:
    """Each is known from then on, and at once if it comes again."""
    identity = JsonKeyIdentity()
    keys = [b'{"id":%d}' % number for number in range(10)]
    assert at_once(identity, keys) == 0
    for key in keys:
        identity.of((), key)
    assert at_once(identity, keys) == len(keys)


def test_small_portions_have_forms_too() -> None:
    """A form is made once enough keys had none, however few come at once, and tried from some keys on."""
    identity = JsonKeyIdentity()
    plain, spaced = ([text % number for number in range(2_000)] for text in (b'{"p":1,"k":%d}', b'{"p": 1,"k":%d}'))
    portions = [[*plain[at : at + 20], *spaced[at : at + 20]] for at in range(0, 2_000, 20)]
    for portion in portions[:20]:
        at_once(identity, portion)
    assert [at_once(identity, portion) for portion in portions[20:]] == [40] * 80


LEAVES: Final[list[tuple[Any, st.SearchStrategy[Any]]]] = [
    ("int", st.integers(-1 << 31, (1 << 31) - 1)),
    ("long", st.integers(-1 << 63, (1 << 63) - 1)),
    ({"type": "long", "logicalType": "timestamp-millis"}, st.integers(-1 << 63, (1 << 63) - 1)),
    ("boolean", st.booleans()),
    ("string", TEXTS),
    ("bytes", st.binary(max_size=4)),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, st.sampled_from("AB")),
    ({"type": "fixed", "name": "F", "size": 3}, st.binary(min_size=3, max_size=3)),
    ("double", st.floats()),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, st.binary(min_size=1, max_size=4)),
    ({"type": "array", "items": "int"}, st.lists(st.integers(0, 9), max_size=2)),
    (["int", "string"], st.integers(0, 9) | TEXTS),
]
PLAIN: Final = 8
"""How many of these are compared at once."""


@st.composite
def key_types(draw: st.DrawFn) -> tuple[Any, st.SearchStrategy[Any]]:
    """Returns the schema of a record, and its values."""
    kinds = draw(st.sampled_from((LEAVES, LEAVES[:PLAIN])))
    picked = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4, unique_by=str))
    fields, values = [], {}
    for name, (kind, own) in zip(draw(st.permutations("azB_")), picked, strict=False):
        is_nullable = draw(st.booleans()) and not isinstance(kind, list)
        fields.append({"name": name, "type": ["null", kind] if is_nullable else kind})
        values[name] = st.none() | own if is_nullable else own
    return {"type": "record", "name": "K", "fields": fields}, st.fixed_dictionaries(values)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=key_types(), data=st.data())
def test_keys_of_avro_are_compared_at_once_as_each_alone(
    memory: MemoryRegistry, avro: AvroKeyIdentity, kind: tuple[Any, st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    """Of any fields, whole or damaged."""
    schema, values = kind
    usual = [encoded(_without_logical(schema), memory.add(schema), data.draw(values)) for _ in range(6)]
    keys = [*usual, *[damaged(data.draw(st.sampled_from(usual)), data) for _ in range(6)], usual[0] + b"\0", b"", b"\0"]
    avro.of((), usual[0])
    at_once(avro, data.draw(st.permutations(keys)))


def _without_logical(schema: Any) -> Any:
    return json.loads(json.dumps(schema).replace("logicalType", "was"))


def test_a_text_is_written_as_json_writes_it(memory: MemoryRegistry, avro: AvroKeyIdentity) -> None:
    """Each character; those of which JSON has two forms are left to be written by themselves."""
    fields = [{"name": "z", "type": "string"}, {"name": "a", "type": ["null", "bytes"]}]
    schema = {"type": "record", "name": "K", "fields": fields}
    number = memory.add(schema)
    rows = [{"z": chr(code), "a": None if code % 3 else bytes([code % 256])} for code in range(300)]
    keys = [encoded(schema, number, row) for row in rows]
    avro.of((), keys[0])
    assert at_once(avro, keys) == 0x7F - 0x20 - 2 + 1  # the key of a zero is remembered


@pytest.mark.parametrize("names", [("a",), ("z", "a")])
def test_flat_keys_of_avro_need_no_python_for_each(
    memory: MemoryRegistry, avro: AvroKeyIdentity, names: tuple[str, ...]
) -> None:
    """Of several schemas in turn, once each was read."""
    keys = []
    for kind in ("int", "string", ["null", "long"]):
        schema = {"type": "record", "name": "K", "fields": [{"name": name, "type": kind} for name in names]}
        number = memory.add(schema)
        rows = [dict.fromkeys(names, str(each) if kind == "string" else each) for each in range(ENOUGH)]
        keys.append([encoded(schema, number, row) for row in rows])
        assert at_once(avro, keys[-1]) == 0
        avro.of((), keys[-1][0])
    assert at_once(avro, [key for three in zip(*keys, strict=True) for key in three]) == 3 * ENOUGH

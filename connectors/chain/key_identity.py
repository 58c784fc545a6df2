"""Compares keys by what they mean (`compaction.key.identity`): the identity of a key, and how the key encodes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import pyarrow as pa

from connectors.chain.avro_key_columns import AvroKeyColumns
from connectors.chain.compared_keys import LONGEST_AT_ONCE, Compared, ComparedParts, PlainCompared
from connectors.chain.json_key_forms import JsonKeyForms
from connectors.chain.spec import ChainSpec, Resolve, made_converter
from connectors.converters.converter import Converter
from connectors.data.canonical import TooLongError, has_one_encoding, plain, text_of
from connectors.data.collector import LONG
from connectors.data.growth import Room
from connectors.data.json_parts import decoded_in_parts
from connectors.data.kept import OfSchema
from connectors.data.pace import passed
from connectors.data.record import Header
from connectors.errors import DataError, RegistryError
from connectors.kept_values import Kept
from connectors.machine_errors import refuse_machine
from connectors.registry.answers import SchemaId
from connectors.rejection import reason_of

if TYPE_CHECKING:
    from connectors.converters.avro.converter import AvroConverter

JSON: Final = "json"
AVRO: Final = "avro"
_KEPT: Final = 65_536
"""How many keys a reading task remembers the identities of."""
_KEPT_BYTES: Final = 64 << 20
"""About how many bytes all of that may take."""
_ENTRY: Final = 400
"""About how many bytes a remembered key takes apart from its own and those of its identity."""
_MOST: Final = 64 << 10
"""Bytes that any identity may have. What is said once may be meant often: the names of fields in a list of Avro's."""
_MOST_A_BYTE: Final = 16
"""How many more it may have for each byte of its key: an escaped character takes 6, and `1e399` would take 80."""
_LONG: Final = 400
"""A number of more characters is no int: Python takes long for it, and refuses the longest."""
_STYLES: Final = tuple(
    (f"{number}{is_ascii:d}", is_ascii, json.JSONEncoder(separators=separators, ensure_ascii=is_ascii))
    for number, separators in enumerate(((",", ":"), (", ", ": ")))
    for is_ascii in (True, False)
)


class KeyIdentity(Protocol):
    """Finds the identity of keys; used by one thread at a time. `name` is that of its class in an error."""

    name: str

    def of(self, headers: Sequence[Header], key: bytes) -> Compared:
        """Returns what `key` is compared by. Raises DataError, RegistryError."""

    def of_many(self, keys: pa.BinaryArray) -> ComparedParts:
        """Returns what `keys` of records without headers that name a schema are compared by, as far as columns say it.

        Those of the rest have to be found one by one. It asks no registry.
        """

    def close(self) -> None:
        """Lets go of connections; it is not used after that."""


class JsonKeyIdentity:
    """Keys are JSON: order of members, spaces, escapes and forms of numbers make no difference (RFC 8259)."""

    name = "keyfold.JsonKeyIdentity"

    def __init__(self) -> None:
        self._kept: Kept[bytes, PlainCompared] = Kept(_KEPT, _KEPT_BYTES)
        self._forms = JsonKeyForms(_of_json)

    def of(self, headers: Sequence[Header], key: bytes) -> Compared:  # noqa: ARG002
        """See `KeyIdentity.of`."""
        kept = self._kept.get(key)
        return Compared(*kept) if kept is not None else _remembered(self._kept, key, key, _of_json(key))

    def of_many(self, keys: pa.BinaryArray) -> ComparedParts:
        """See `KeyIdentity.of_many`."""
        compared = ComparedParts(len(keys))
        self._forms.add_to(compared, keys)
        return _with_kept(compared, keys, self._kept)

    def close(self) -> None:
        """See `KeyIdentity.close`: there are none."""


class AvroKeyIdentity:
    """Keys are Avro of a registry: the id of the schema, and what schemas of one subject may differ in, makes none."""

    name = "keyfold.AvroKeyIdentity"

    def __init__(self, converter: AvroConverter) -> None:
        self._converter = converter
        self._room = Room()
        self._has_one_encoding = OfSchema(has_one_encoding)
        # By the key alone, which names its schema itself, or also by the id of the schema that a header names: nothing
        # else of the headers is kept, which may be many and long.
        self._kept: Kept[bytes | tuple[SchemaId, bytes], PlainCompared] = Kept(_KEPT, _KEPT_BYTES)
        self._columns = AvroKeyColumns(converter, self._room)

    def of(self, headers: Sequence[Header], key: bytes) -> Compared:
        """See `KeyIdentity.of`."""
        kept = None if headers else self._kept.get(key)
        if kept is not None:
            return Compared(*kept)
        schema_id, start, _ = self._converter.wire.read(headers, key)
        asked = key if start else (schema_id, key)
        kept = self._kept.get(asked)
        if kept is not None:
            return Compared(*kept)
        return _remembered(self._kept, asked, key, self._of(schema_id, start, key))

    def of_many(self, keys: pa.BinaryArray) -> ComparedParts:
        """See `KeyIdentity.of_many`."""
        compared = ComparedParts(len(keys))
        self._columns.add_to(compared, keys)
        return _with_kept(compared, keys, self._kept)

    def _of(self, schema_id: SchemaId, start: int, key: bytes) -> Compared:
        converter = self._converter
        schema, value = converter.value_of(schema_id, start, key)
        self._room.check(len(key), schema, value)
        identity = _identity(plain(schema, value), key)
        has_one = schema is None or self._has_one_encoding(schema)
        is_exact = has_one and converter.writes_again(schema_id, start, key, value)
        place = "" if start else "h"  # in a header
        return Compared(identity, f"{schema_id.encoding}{place}" if is_exact else None)

    def close(self) -> None:
        """See `KeyIdentity.close`."""
        self._converter.close()


def _with_kept(compared: ComparedParts, keys: pa.BinaryArray, kept: Kept[Any, PlainCompared]) -> ComparedParts:
    """Returns `compared` with what is kept of the rest of `keys`."""
    rest = compared.rest
    if len(rest):
        compared.add_each(rest, kept.get_all(keys.take(pa.array(rest)).to_pylist()))
    return compared


def _of_json(key: bytes) -> Compared:
    try:
        text = key.decode()
        value = decoded_in_parts(lambda part: _DECODER.decode(part.decode()), key)
        identity = _identity(value, key)
        return Compared(None, "=") if identity == key else Compared(identity, _style(text, value))
    except (ValueError, InvalidOperation, RecursionError) as error:
        raise DataError(
            f"The key is no JSON: {reason_of(error)}.", "Take compaction.key.identity=bytes for such keys."
        ) from None


def _identity(value: Any, key: bytes) -> bytes:
    """Returns the text of `value` as an identity of `key`; DataError, while it is written, if it is far longer."""
    most = _MOST + _MOST_A_BYTE * len(key)
    try:
        return text_of(value, most).encode()
    except TooLongError:
        raise DataError(
            f"The key of {len(key)} bytes has an identity of more than {most} bytes, which are the most.",
            "Write its numbers without large exponents, or take compaction.key.identity=bytes for such keys.",
        ) from None


def _remembered(kept: Kept[Any, PlainCompared], asked: Any, key: bytes, compared: Compared) -> Compared:
    """Returns `compared`, and keeps it for the next record with this key if both are short."""
    size = len(compared.identity or b"")
    if len(key) <= LONGEST_AT_ONCE and size <= LONGEST_AT_ONCE:
        kept.put(asked, (compared.identity, compared.encoding), len(key) + size + _ENTRY)
    return compared


def _whole(text: str) -> int | Decimal:
    return int(text) if len(text) <= _LONG else Decimal(text)


def _exact(text: str) -> Decimal:
    return Decimal(text)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


_DECODER: Final = json.JSONDecoder(parse_int=_whole, parse_float=_exact, parse_constant=_no_number)


def _style(text: str, value: Any) -> str | None:
    """Returns the encoding of a text that is one of two usual forms of its value: spaces, and the order of members."""
    is_plain = text.isascii() and "\\u" not in text  # then both forms of other letters would be the same
    for name, is_ascii, encoder in _STYLES:
        try:
            is_written = (is_ascii or not is_plain) and _is_written(text, value, encoder)
        except TypeError:  # a number that is not whole: it has other forms
            return None
        if is_written:
            return f"{name}{hashlib.blake2b(_shape(value).encode(), digest_size=6).hexdigest()}"
    return None


def _is_written(text: str, value: Any, encoder: json.JSONEncoder) -> bool:
    """Returns whether `encoder` writes `value` as `text`. A long one is compared piece by piece, not in one call."""
    if len(text) < LONG:
        return encoder.encode(value) == text
    at = 0
    for piece in encoder.iterencode(value):
        passed(1)
        if not text.startswith(piece, at):
            return False
        at += len(piece)
    return at == len(text)


def _shape(value: Any) -> str:
    """Returns the names of all members, in their order; with it, the value's text says how it was written."""
    match value:
        case dict():
            return f"{{{','.join(json.dumps(name) + _shape(member) for name, member in value.items())}}}"
        case list():
            return f"[{','.join(map(_shape, value))}]"
        case _:
            return ""


def key_identity(name: str, converter: Converter) -> KeyIdentity | None:
    """Makes what finds identities, by its name in a file; None for `bytes`. `converter` has written the keys."""
    if name == JSON:
        return JsonKeyIdentity()
    return AvroKeyIdentity(cast("AvroConverter", converter)) if name == AVRO else None  # a rule of the file's


def key_identity_of(spec: ChainSpec, resolve: Resolve) -> KeyIdentity | None:
    """Makes what finds the identities of a connector's keys; None if they are compared by their bytes."""
    return key_identity(spec.identity, made_converter(spec.written_key, resolve, is_key=True))


UNREADABLE: Final = b"\xff"
"""What the identity of a key begins with that cannot be read; no other does."""


def compared(identity: KeyIdentity, headers: Sequence[Header], key: bytes) -> Compared:
    """Returns what a key of the output is compared by: by itself if it cannot be read. Raises RegistryError."""
    try:
        return identity.of(headers, key)
    except RegistryError:
        raise
    except Exception as error:  # noqa: BLE001  # a schema may hold anything
        refuse_machine(error)
        return Compared(UNREADABLE + key, None)

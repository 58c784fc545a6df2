"""Reads and writes JSON, with or without schemas (`org.apache.kafka.connect.json.JsonConverter`).

Stricter than Java's class in what it reads: nothing may follow the value, a whole number has 64 bits at most, and
a value must be of the type that its schema says (`json/values.py`).
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from compactor.json_types import decoder
from connectors.converters.converter import Converter, Headers
from connectors.converters.json.fields import JsonFields
from connectors.converters.json.plain_events import PlainEvents
from connectors.converters.json.schemas import read_schema, write_schema
from connectors.converters.json.unwrapper import JsonUnwrapper
from connectors.converters.json.values import JsonForm, JsonValues, check_without_schema, encoded, exact
from connectors.converters.written_fields import WrittenFields
from connectors.data.bounds import LONGEST_SCHEMA
from connectors.data.collector import decoded
from connectors.data.json_parts import decoded_in_parts
from connectors.data.kept import OfSchema, weight_of
from connectors.data.schema import DECIMAL, Schema
from connectors.data.unwrapping import Unwrapper, Unwrapping
from connectors.errors import DataError
from connectors.kept_values import Kept
from connectors.options import Option, OptionsError
from connectors.rejection import reason_of

_SPACES: Final = b" \t\r\n"
"""What may stand around JSON; a value of nothing else is null, as with Java's class."""
_MARKS: Final = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
"""Encodings by their marks (BOM), in this order, as that of UTF-32 begins with that of UTF-16."""
_MARKED: Final = r"^[\x00\xfe\xff]"
"""How texts of UTF-16 and UTF-32 begin, which are read to see what they are."""
_NULL: Final = rf"^(?:\xef\xbb\xbf)?[ \t\r\n]*(?:null[ \t\r\n]*)?$|{_MARKED}"
"""What may be a null without an envelope."""
_NULL_LAST: Final = r"null[ \t\r\n]*\}[ \t\r\n]*$"
_NULL_FIRST: Final = rf'^(?:\xef\xbb\xbf)?[ \t\r\n]*\{{[ \t\r\n]*"[^"]*"[ \t\r\n]*:[ \t\r\n]*null|{_MARKED}'
"""What may be an envelope whose payload, its last or its first member, is null. Searching for `payload` itself would
take 30 times as long, as that is in the middle: 1.4 us for a record of 1.7 kB."""
NEEDS_ENVELOPE: Final = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields.'
)


class Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """A message with its schema; both as the JSON that they are."""

    schema: msgspec.Raw
    payload: msgspec.Raw


DECIMAL_FORMAT: Final = Option(
    "decimal.format",
    "STRING",
    "BASE64",
    "How a Decimal is written: `BASE64` of its unscaled value, or `NUMERIC`. Both are read.",
    allowed=("BASE64", "NUMERIC"),
    any_case=True,
    importance="LOW",
)


class JsonConverter(Converter):
    """Values are JSON. With `schemas.enable` a message holds its schema, unless `schema.content` gives it."""

    HAS_NULLS = True
    HAS_FIELDS = True
    OPTIONS = (
        Option(
            "schemas.enable",
            "BOOLEAN",
            default=True,
            doc="Each message is an object of `schema` and `payload`. `false`: a message is the value alone.",
            importance="HIGH",
        ),
        Option(
            "schema.content",
            "STRING",
            None,
            "The schema of all messages, as JSON, where messages do not have one (KIP-1054). Not set: they have.",
            longest=LONGEST_SCHEMA,
        ),
        Option(
            "schemas.cache.size", "INT", 1000, "How many schemas are kept, if they are not too large.", importance="LOW"
        ),
        DECIMAL_FORMAT,
        Option(
            "replace.null.with.default",
            "BOOLEAN",
            default=True,
            doc="A null in a field with a default stands for the default.",
            importance="LOW",
        ),
    )

    def __init__(self, options: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(options, is_key=is_key)
        numeric = options[DECIMAL_FORMAT.name].upper() == "NUMERIC"
        self.values = JsonValues(JsonForm(numeric=numeric, defaults=options["replace.null.with.default"]))
        self._enabled: bool = options["schemas.enable"]
        self._envelope = decoder(Envelope)
        self._plain, self._exact = msgspec.json.Decoder(), msgspec.json.Decoder(float_hook=exact)
        self._schemas: Kept[bytes, tuple[Schema | None, bool]] = Kept(options["schemas.cache.size"])
        self._written = OfSchema(lambda schema: encoded(write_schema(schema, self.values.write_defaults())))
        content = options["schema.content"]
        self._fixed = self._fixed_of(content) if content and self._enabled else None
        self._holds_schemas = self._enabled and self._fixed is None  # in each message

    def maybe_null(self, values: pa.Array) -> pa.BooleanArray | None:
        """See `Converter.maybe_null`."""
        if not self._holds_schemas:
            return pc.match_substring_regex(values, _NULL)
        return pc.or_(pc.match_substring_regex(values, _NULL_LAST), pc.match_substring_regex(values, _NULL_FIRST))

    def to_connect_data(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:  # noqa: ARG002
        """See `Converter`."""
        if data is None or (not data.strip(_SPACES) and not self._enabled):
            return None, None
        data = json_text(data)
        try:
            if not self._enabled:
                return None, check_without_schema(decoded_in_parts(self._plain.decode, data))
            if self._fixed is not None:
                return self._read(self._fixed, data)
            schema, payload = self.parts(data)
            return self._read(self._schema(schema), payload)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise DataError(f"This is no JSON: {reason_of(error)}.") from None

    def written_like(self, data: bytes, value: Any) -> bytes | None:
        """See `Converter.written_like`."""
        if not self._holds_schemas:
            return encoded(value)
        schema = self._envelope.decode(data).schema
        return b'{"schema":' + bytes(schema) + b',"payload":' + encoded(value) + b"}"

    def from_connect_data(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        """See `Converter`. Numbers are equal to those that Java's class writes, not always in the same digits."""
        if schema is None and value is None:
            return None
        payload = encoded(self.values.write(schema, value))
        if not self._holds_schemas:
            return payload
        return (b'{"schema":null,"payload":' if schema is None else self.before_payload(schema)) + payload + b"}"

    def unwrapper(self, unwrapping: Unwrapping, writer: Converter) -> Unwrapper | None:
        """See `Converter.unwrapper`: what is written is JSON, too."""
        if self._holds_schemas and isinstance(writer, JsonConverter):
            return JsonUnwrapper(self, writer, unwrapping)
        return PlainEvents(self.maybe_null, unwrapping) if not self._enabled and writer is self else None

    def parts(self, data: bytes) -> tuple[bytes, bytes]:
        """See `KnownEnvelopes.parts`."""
        envelope = self._enveloped(data)
        return bytes(envelope.schema), bytes(envelope.payload)

    def known_schema(self, text: bytes) -> Schema | None:
        """See `KnownEnvelopes.known_schema`."""
        kept = self._schemas.get(text)
        return None if kept is None else kept[0]

    def before_payload(self, schema: Schema) -> bytes:
        """See `KnownEnvelopes.before_payload`."""
        return b'{"schema":' + self._written(schema) + b',"payload":' if self._holds_schemas else b""

    def fields_of(self, headers: Headers, data: bytes) -> WrittenFields | None:  # noqa: ARG002
        """See `Converter`."""
        text = json_text(data)
        try:
            if not self._holds_schemas:
                return JsonFields(text, bytes)
            schema, payload = self.parts(text)
            before, after = b'{"schema":' + schema + b',"payload":', b"}"
            return JsonFields(payload, lambda payload: before + payload + after, self._plain.decode(schema))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise DataError(f"This is no JSON object: {reason_of(error)}.") from None

    def _fixed_of(self, content: str) -> tuple[Schema | None, bool]:
        try:
            return self._schema(content.encode())
        except (msgspec.MsgspecError, RecursionError) as error:
            raise OptionsError([("schema.content", f"this is no JSON: {reason_of(error)}.")]) from None
        except DataError as error:
            raise OptionsError([("schema.content", f"this is no schema: {error.message} {error.action}")]) from None

    def _enveloped(self, data: bytes) -> Envelope:
        try:
            return self._envelope.decode(data)
        except msgspec.ValidationError:
            raise DataError(
                NEEDS_ENVELOPE,
                f"If you are trying to deserialize plain JSON data, set {'key' if self.is_key else 'value'}.converter."
                "schemas.enable=false, or give its schema in schema.content.",
            ) from None

    def _schema(self, text: bytes) -> tuple[Schema | None, bool]:
        """Returns a schema, and whether it has Decimals, of which the digits count."""
        entry = self._schemas.get(text)
        if entry is None:
            node = decoded(self._plain.decode, text)
            schema = None if node is None else read_schema(node, self.values.read_defaults())
            entry = schema, DECIMAL.encode() in text
            self._schemas.put(text, entry, weight_of(text, schema))
        return entry

    def _read(self, entry: tuple[Schema | None, bool], payload: bytes) -> tuple[Schema | None, Any]:
        schema, is_exact = entry
        node = decoded_in_parts((self._exact if is_exact else self._plain).decode, payload)
        return schema, check_without_schema(node) if schema is None else self.values.read(schema, node)


def json_text(data: bytes) -> bytes:
    """Returns JSON as UTF-8, without the mark of its encoding (BOM). Java's parser takes UTF-16 and UTF-32 by it."""
    if not data or 0 < data[0] < 0x80:  # as nearly all begin
        return data
    mark = next((candidate for candidate in _MARKS if data.startswith(candidate)), None)
    if mark is None or mark is codecs.BOM_UTF8:
        return data if mark is None else data[len(mark) :]
    try:
        return data[len(mark) :].decode(_MARKS[mark]).encode()
    except UnicodeError as error:
        raise DataError(f"This is no JSON: {reason_of(error)}.") from None

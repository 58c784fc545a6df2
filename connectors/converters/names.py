"""The converters that a file can name: keyfold's names, and those of Kafka's and the registries' Java classes."""

from __future__ import annotations

from typing import Final

from connectors.class_names import ClassName, ClassNames

BYTES: Final = "keyfold.Bytes"
AVRO: Final = "keyfold.Avro"
SIMPLE: Final = "keyfold.Simple"
"""The default of header.converter: Connect's SimpleHeaderConverter."""
_KAFKA: Final = "org.apache.kafka.connect.converters."
_HERE: Final = "connectors.converters."


def _converter(name: str, place: str, *javas: str) -> ClassName:
    """Returns a class by keyfold's name, its Java names, and the first of these without its package."""
    return ClassName(f"keyfold.{name}", f"{_HERE}{place}", aliases=(*javas, javas[0].rpartition(".")[2]))


_NUMBERS: Final = [
    _converter(name, f"primitive_converters:{name}Converter", f"{_KAFKA}{name}Converter")
    for name in ("Boolean", "Short", "Integer", "Long", "Float", "Double")
]
_JSON: Final = _converter("Json", "json.converter:JsonConverter", "org.apache.kafka.connect.json.JsonConverter")
_STRING: Final = "org.apache.kafka.connect.storage.StringConverter"
_BYTE_ARRAY: Final = f"{_KAFKA}ByteArrayConverter"
_REGISTERED: Final = (
    _converter(
        "Avro",
        "avro.converter:AvroConverter",
        "io.confluent.connect.avro.AvroConverter",
        "io.apicurio.registry.utils.converter.AvroConverter",
    ),
    _converter(
        "JsonSchema", "json.schema_converter:JsonSchemaConverter", "io.confluent.connect.json.JsonSchemaConverter"
    ),
    _converter("Protobuf", "protobuf.converter:ProtobufConverter", "io.confluent.connect.protobuf.ProtobufConverter"),
)

CONVERTERS: Final = ClassNames(
    "converter",
    (
        _converter("Bytes", "converter:BytesConverter", _BYTE_ARRAY),
        _converter("String", "primitive_converters:StringConverter", _STRING),
        *_NUMBERS,
        _JSON,
        *_REGISTERED,
    ),
    {
        "io.apicurio.registry.utils.converter.ExtJsonConverter": (
            "it writes JSON beside the id of a schema in a form of its own, which Apicurio's registry alone knows; "
            "write with JsonSchemaConverter, AvroConverter, or JsonConverter with schemas."
        ),
    },
)
"""`keyfold.Bytes` neither reads nor writes: it is the default, and what no step looks at stays as it is."""

HEADER_CONVERTERS: Final = ClassNames(
    "header converter",
    (
        _converter(
            "Simple",
            "header_converters:SimpleHeaderConverter",
            "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        ),
        _converter("String", "header_converters:StringHeaderConverter", _STRING),
        _converter("Bytes", "header_converters:ByteArrayHeaderConverter", _BYTE_ARRAY),
        _JSON,
        *_NUMBERS,
    ),
    dict.fromkeys(
        (name for converter in _REGISTERED for name in (converter.aliases[0], converter.java)),
        "it converts keys and values, and no headers; header.converter may be SimpleHeaderConverter, the default, "
        "StringConverter, JsonConverter, ByteArrayConverter, or one for numbers.",
    ),
)
"""They write the headers that a transform adds. Headers that were read are never looked at, and stay as they are."""

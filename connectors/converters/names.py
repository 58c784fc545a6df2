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


def _converter(name: str, place: str, *aliases: str) -> ClassName:
    return ClassName(f"keyfold.{name}", f"{_HERE}{place}", aliases=aliases)


CONVERTERS: Final = ClassNames(
    "converter",
    (
        _converter("Bytes", "bytes_converter:BytesConverter", f"{_KAFKA}ByteArrayConverter", "ByteArrayConverter"),
        _converter(
            "String",
            "string_converter:StringConverter",
            "org.apache.kafka.connect.storage.StringConverter",
            "StringConverter",
        ),
        _converter("Boolean", "number_converters:BooleanConverter", f"{_KAFKA}BooleanConverter", "BooleanConverter"),
        _converter("Short", "number_converters:ShortConverter", f"{_KAFKA}ShortConverter", "ShortConverter"),
        _converter("Integer", "number_converters:IntegerConverter", f"{_KAFKA}IntegerConverter", "IntegerConverter"),
        _converter("Long", "number_converters:LongConverter", f"{_KAFKA}LongConverter", "LongConverter"),
        _converter("Float", "number_converters:FloatConverter", f"{_KAFKA}FloatConverter", "FloatConverter"),
        _converter("Double", "number_converters:DoubleConverter", f"{_KAFKA}DoubleConverter", "DoubleConverter"),
        _converter(
            "Json", "json.converter:JsonConverter", "org.apache.kafka.connect.json.JsonConverter", "JsonConverter"
        ),
        _converter(
            "Avro",
            "avro.converter:AvroConverter",
            "io.confluent.connect.avro.AvroConverter",
            "io.apicurio.registry.utils.converter.AvroConverter",
            "AvroConverter",
        ),
        _converter(
            "JsonSchema",
            "json.schema_converter:JsonSchemaConverter",
            "io.confluent.connect.json.JsonSchemaConverter",
            "JsonSchemaConverter",
        ),
        _converter(
            "Protobuf",
            "protobuf.converter:ProtobufConverter",
            "io.confluent.connect.protobuf.ProtobufConverter",
            "ProtobufConverter",
        ),
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
            "SimpleHeaderConverter",
        ),
        _converter(
            "String",
            "header_converters:StringHeaderConverter",
            "org.apache.kafka.connect.storage.StringConverter",
            "StringConverter",
        ),
        _converter(
            "Bytes",
            "header_converters:ByteArrayHeaderConverter",
            f"{_KAFKA}ByteArrayConverter",
            "ByteArrayConverter",
        ),
        _converter(
            "Json",
            "converted_headers:JsonHeaderConverter",
            "org.apache.kafka.connect.json.JsonConverter",
            "JsonConverter",
        ),
        *(
            _converter(
                name,
                f"converted_headers:{name}HeaderConverter",
                f"{_KAFKA}{name}Converter",
                f"{name}Converter",
            )
            for name in ("Boolean", "Short", "Integer", "Long", "Float", "Double")
        ),
    ),
    dict.fromkeys(
        (
            *("io.confluent.connect.avro.AvroConverter", "keyfold.Avro"),
            *("io.confluent.connect.json.JsonSchemaConverter", "keyfold.JsonSchema"),
            *("io.confluent.connect.protobuf.ProtobufConverter", "keyfold.Protobuf"),
        ),
        "it converts keys and values, and no headers; header.converter may be SimpleHeaderConverter, the default, "
        "StringConverter, JsonConverter, ByteArrayConverter, or one for numbers.",
    ),
)
"""They write the headers that a transform adds. Headers that were read are never looked at, and stay as they are."""

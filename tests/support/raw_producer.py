"""Produces records with header names of any bytes by librdkafka's C interface; Python's clients take only text."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from ctypes import c_char_p, c_int, c_int32, c_size_t, c_ssize_t, c_void_p
from pathlib import Path
from typing import Final

import confluent_kafka

_END, _TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADERS = (c_int(number) for number in (0, 1, 3, 4, 5, 7, 10))
_COPY: Final = c_int(2)
_PRODUCER: Final = 0
_TIMEOUT_MS: Final = 30_000

RawRecord = tuple[bytes, bytes, list[tuple[bytes, bytes]]]
"""Key, value, headers."""


def produce_bytes(bootstrap: str, topic: str, records: Iterable[RawRecord]) -> None:
    """Produces `records` to partition 0, header names unchanged."""
    library = _library()
    settings = c_void_p(library.rd_kafka_conf_new())
    said = ctypes.create_string_buffer(512)
    assert library.rd_kafka_conf_set(settings, b"bootstrap.servers", bootstrap.encode(), said, 512) == 0, said.value
    client = c_void_p(library.rd_kafka_new(_PRODUCER, settings, said, 512))
    for key, value, headers in records:
        made = c_void_p(library.rd_kafka_headers_new(c_size_t(len(headers))))
        for name, content in headers:
            library.rd_kafka_header_add(made, c_char_p(name), c_ssize_t(len(name)), content, c_ssize_t(len(content)))
        where = (_TOPIC, c_char_p(topic.encode()), _PARTITION, c_int32(0), _FLAGS, _COPY, _HEADERS, made)
        data = (_VALUE, c_char_p(value), c_size_t(len(value)), _KEY, c_char_p(key), c_size_t(len(key)))
        assert library.rd_kafka_producev(client, *where, *data, _END) == 0
    assert library.rd_kafka_flush(client, _TIMEOUT_MS) == 0
    library.rd_kafka_destroy(client)


def _library() -> ctypes.CDLL:
    """Loads the librdkafka that confluent-kafka contains."""
    (path,) = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka*")
    library = ctypes.CDLL(str(path))
    for name in ("conf_new", "new", "headers_new"):
        getattr(library, f"rd_kafka_{name}").restype = c_void_p
    return library

"""Takes many messages of a consumer at once, without a Python object for each, by librdkafka's C interface.

`Consumer.consume` makes an object of each message, and its fields are then asked for one by one: twice the processor
time of reading itself. Here librdkafka fills an array of addresses, and NumPy reads the fields of all messages from
librdkafka's own memory, as long as they are held.

librdkafka delivers messages to queues: each partition has one, which is *forwarded* to the consumer's. That one cannot
be asked for many at once. So the partitions are forwarded to a queue of their own. Lines of the log, and errors that
are no partition's, still come by the consumer's queue, which its owner polls as before.

Three things that this uses are not public. They were read in the source of LIBRARY and BINDING: the place of the
client's address in a consumer, the private part of `_Msg`, and that `rd_kafka_messages_destroy` takes a count and as
many addresses after it (`rd_kafka_messages_s`). With any other version there is no such queue, and the consumer is
asked as usual. docs/decisions/0009 says why this is done, what guards it, and how the versions are raised.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import numpy as np
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from numpy.typing import NDArray

from compactor.errors import DEFECT, IngestError

Longs = NDArray[np.int64]
Pairs = list[tuple[str, bytes | None]]

BINDING: Final = "2.16.1"
LIBRARY: Final = "2.16.0"
_SHOWN: Final = 100
"""Bytes of a header's name that are shown: it may be as long as a record."""
_POINTER: Final = ctypes.c_void_p
_CLIENT_AT: Final = 16
"""Byte of a `Consumer` at which the address of its client stands, after Python's count of references and the type."""
_WORD: Final = 8
"""Bytes of an address."""
_NO_HEADERS: Final = 1
"""Bytes of the headers of a message that has none: their number, 0."""


class _Msg(ctypes.Structure):
    """What librdkafka LIBRARY holds of a message, `rd_kafka_msg_t`: a public part, then a private one."""

    _fields_ = (
        # rd_kafka_message_t of rdkafka.h
        ("err", ctypes.c_int),
        ("rkt", _POINTER),  # the topic's handle
        ("partition", ctypes.c_int32),
        ("payload", _POINTER),
        ("len", ctypes.c_size_t),
        ("key", _POINTER),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", _POINTER),
        # the rest of rd_kafka_msg_s in rdkafka_msg.h, for a message that was consumed
        ("link", _POINTER * 2),
        ("flags", ctypes.c_int),
        ("tstype", ctypes.c_int),
        ("timestamp", ctypes.c_int64),
        ("headers", _POINTER),  # null until they are asked for
        ("status", ctypes.c_int),
        ("broker_id", ctypes.c_int32),
        ("binhdrs_len", ctypes.c_int32),  # of the headers as they came
        ("binhdrs_data", _POINTER),
    )


class MessageQueue:
    """Has the messages of `partitions`, which `consumer` is assigned after this; its own queue has everything else.

    The consumer must be one that was never assigned anything, and gets no other assignment. librdkafka ends one by
    forwarding its partitions to no queue, on its own thread, at a time that cannot be seen. The next assignment
    forwards none that an application has forwarded before, so nothing of it would come. The queue is closed before the
    consumer.
    """

    def __init__(self, library: Any, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        self._library = library
        client = _POINTER.from_address(id(consumer) + _CLIENT_AT).value
        if client is None:
            raise RuntimeError("The consumer is closed.")
        # Whether messages were seen to be laid out as this module has it; once is enough.
        self._is_checked = False
        self._queue = library.rd_kafka_queue_new(client)
        self._partitions = [
            library.rd_kafka_queue_get_partition(client, each.topic.encode(), each.partition) for each in partitions
        ]
        for partition in self._partitions:
            library.rd_kafka_queue_forward(partition, self._queue)

    @contextmanager
    def consume(self, most: int, seconds: float) -> Iterator[Messages]:
        """Waits for at most `seconds` for at most `most` messages; they are held during the block."""
        library = self._library
        block = library.rd_kafka_mem_malloc(None, _WORD * (most + 1))
        size = library.rd_kafka_consume_batch_queue(self._queue, round(seconds * 1_000), block + _WORD, most)
        ctypes.c_size_t.from_address(block).value = size = max(0, size)
        try:
            messages = Messages(library, _memory(block + _WORD, _WORD * size).view(np.int64))
            if messages.records.size and not self._is_checked:
                messages.check()
                self._is_checked = True
            yield messages
        finally:
            library.rd_kafka_messages_destroy(block)

    def close(self) -> None:
        """Gives up what is still to come; the consumer can only be closed then."""
        partitions, self._partitions = self._partitions, []
        for partition in partitions:
            self._library.rd_kafka_queue_forward(partition, None)
            self._library.rd_kafka_queue_destroy(partition)
        queue, self._queue = self._queue, None
        if queue:
            self._library.rd_kafka_queue_destroy(queue)


class Messages:
    """Messages that librdkafka holds: `records` by the addresses of the messages, and what stands for an error."""

    def __init__(self, library: Any, pointers: Longs) -> None:
        self._library = library
        faulty = _field(pointers, "err") != 0
        self.records = pointers[~faulty] if faulty.any() else pointers
        self.errors = [self._error(int(pointer)) for pointer in pointers[faulty]]

    def check(self) -> None:
        """Compares what is read of the first and the last record with what librdkafka's public functions tell.

        Raises IngestError if they differ: nothing of such messages can be trusted.
        """
        ends = self.records[[0, -1]]
        times, kinds = self.times(ends)
        has_headers = self._has_headers(ends)
        for number, pointer in enumerate(ends.tolist()):
            kind, held = ctypes.c_int(), _POINTER()
            time = self._library.rd_kafka_message_timestamp(pointer, ctypes.byref(kind))
            is_without = bool(self._library.rd_kafka_message_headers(pointer, ctypes.byref(held)))
            if (time, kind.value, not is_without) != (times[number], kinds[number], has_headers[number]):
                raise IngestError(f"librdkafka {LIBRARY} lays out its messages otherwise than was read.", DEFECT)

    def _has_headers(self, records: Longs) -> NDArray[np.bool_]:
        return (_field(records, "headers") != 0) | (_field(records, "binhdrs_len") > _NO_HEADERS)

    def topics(self, records: Longs) -> list[tuple[str, NDArray[np.bool_] | None]]:
        """Returns each topic of `records` with a mask of those that are of it; None: all are."""
        handles = _field(records, "rkt")
        if (handles == handles[0]).all():
            return [(self._name(int(handles[0])), None)]
        return [(self._name(int(handle)), handles == handle) for handle in np.unique(handles)]

    def partitions(self, records: Longs) -> Longs:
        """Returns the number of each record's partition."""
        return _field(records, "partition").astype(np.int64)

    def offsets(self, records: Longs) -> Longs:
        """Returns the offset of each record."""
        return _field(records, "offset")

    def times(self, records: Longs) -> tuple[Longs, NDArray[np.int32]]:
        """Returns the time (ms) of each record, and its kind as librdkafka counts: 1 is CreateTime."""
        return _field(records, "timestamp"), _field(records, "tstype")

    def keys(self, records: Longs) -> tuple[Longs, Longs]:
        """Returns the address of each record's key, 0 if it has none, and its bytes."""
        return _field(records, "key"), _field(records, "key_len")

    def values(self, records: Longs) -> tuple[Longs, Longs]:
        """Returns the address of each record's value, 0 if it has none, and its bytes."""
        return _field(records, "payload"), _field(records, "len")

    def headers(self, records: Longs) -> tuple[list[Pairs | None], dict[int, str]]:
        """Returns the headers of each record, None if it has none, and by index why a record's are unreadable.

        A list without elements: no record has headers. Each header is asked for by itself, which takes a while.
        """
        has = self._has_headers(records)
        if not has.any():
            return [], {}
        headers: list[Pairs | None] = [None] * len(records)
        odd: dict[int, str] = {}
        for number in np.flatnonzero(has).tolist():
            try:
                headers[number] = self._pairs(int(records[number]))
            except UnicodeDecodeError as error:
                odd[number] = f"a header name {error.object[:_SHOWN]!r} is not UTF-8"
        return headers, odd

    def _pairs(self, record: int) -> Pairs | None:
        held = _POINTER()
        if self._library.rd_kafka_message_headers(record, ctypes.byref(held)):
            return None
        name, value, size = ctypes.c_char_p(), _POINTER(), ctypes.c_size_t()
        parts = [ctypes.byref(part) for part in (name, value, size)]
        pairs: Pairs = []
        while not self._library.rd_kafka_header_get_all(held, len(pairs), *parts):
            told = ctypes.string_at(value.value, size.value) if value.value is not None else None
            pairs.append(((name.value or b"").decode(), told))
        return pairs

    def _error(self, pointer: int) -> Message:
        """Makes the message that the consumer itself would have delivered."""
        here = np.array([pointer], np.int64)
        code = int(_field(here, "err")[0])
        reason = (self._library.rd_kafka_message_errstr(pointer) or b"").decode(errors="replace")
        handle = int(_field(here, "rkt")[0])
        topic = self._name(handle) if handle else None
        partition, offset = int(self.partitions(here)[0]), int(self.offsets(here)[0])
        return Message(topic=topic, partition=partition, offset=offset, error=KafkaError(code, reason))

    def _name(self, handle: int) -> str:
        return str(self._library.rd_kafka_topic_name(handle).decode())


def open_queue(consumer: Consumer, partitions: Sequence[TopicPartition]) -> MessageQueue | None:
    """Makes a queue of the messages of `partitions`, which are assigned after this.

    None if the library or the binding is another one than was read, or `consumer` is of a class of its own.
    """
    library = _library()
    return None if library is None or type(consumer) is not Consumer else MessageQueue(library, consumer, partitions)


def _memory(address: int, size: int) -> NDArray[np.uint8]:
    """Returns the `size` bytes at `address`, which librdkafka holds, without copying them."""
    return np.frombuffer(memoryview((ctypes.c_ubyte * size).from_address(address)), np.uint8)


def _field(messages: Longs, name: str) -> NDArray[Any]:
    """Reads the field `name` of `_Msg` of each of `messages`, which are addresses that can be divided by 8.

    All memory from the first to the last of them is seen as one array. What is between them is never looked at.
    """
    place = getattr(_Msg, name)
    kind = np.dtype(f"i{place.size}")
    if not messages.size:
        return np.empty(0, kind)
    first = int(messages.min())
    memory = _memory(first, int(messages.max()) - first + ctypes.sizeof(_Msg))
    words = memory[: memory.size // place.size * place.size].view(kind)
    return np.take(words, (messages - first + place.offset) // place.size)


@cache
def _library() -> Any:
    """Returns the library that confluent-kafka has loaded, with the functions that are called; None if another."""
    versions = str(confluent_kafka.__version__), confluent_kafka.libversion()[0]
    files = sorted(Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka-*.so*"))
    plain = sys.implementation.name == "cpython" and object.__basicsize__ == _CLIENT_AT and sys.maxsize > 1 << 32
    if versions != (BINDING, LIBRARY) or not plain or not files:
        return None
    try:  # not a second one: it would have locks and memory of its own
        library = ctypes.CDLL(str(files[0]), os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return None
    size, text, number = ctypes.c_size_t, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_mem_malloc", _POINTER, [_POINTER, size]),
        ("rd_kafka_queue_new", _POINTER, [_POINTER]),
        ("rd_kafka_queue_get_partition", _POINTER, [_POINTER, text, ctypes.c_int32]),
        ("rd_kafka_queue_forward", None, [_POINTER, _POINTER]),
        ("rd_kafka_queue_destroy", None, [_POINTER]),
        ("rd_kafka_consume_batch_queue", ctypes.c_ssize_t, [_POINTER, number, _POINTER, size]),
        ("rd_kafka_messages_destroy", None, [_POINTER]),
        ("rd_kafka_message_timestamp", ctypes.c_int64, [_POINTER, _POINTER]),
        ("rd_kafka_message_headers", number, [_POINTER, _POINTER]),
        ("rd_kafka_header_get_all", number, [_POINTER, size, _POINTER, _POINTER, _POINTER]),
        ("rd_kafka_message_errstr", text, [_POINTER]),
        ("rd_kafka_topic_name", text, [_POINTER]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library

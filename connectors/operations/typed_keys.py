"""Looks up keys that a person gives: as the bytes that are kept, or as values, which the connector's converter writes.

The schema of a key stands in its bytes, or a registry's id of it does. So some keys that are kept say which schemas
there are; a value is written with each of them. Nothing is registered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from compactor.catalog.catalog import Catalog
from compactor.lookup.latest import OUTLINES
from compactor.lookup.records_at import FileOutlines
from compactor.model.log import PartitionLog
from compactor.runs import reader
from compactor.runs.scan import whole
from compactor.storage.base import Storage
from connectors.chain.spec import ClassSpec, Resolve, made_converter
from connectors.config.connector import ConnectorConfig
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig
from connectors.converters.converter import Converter
from connectors.converters.names import CONVERTERS
from connectors.data.bounds import MOST_READ
from connectors.data.schema import Schema
from connectors.errors import DataError, RegistryError
from connectors.machine_errors import refuse_machine
from connectors.operations.get import KeyAnswer, get, logs_of
from connectors.placeholders import resolve

_LOOKED_AT: Final = 1_000
"""Kept keys of a log that are looked at for their schemas: the first that a run has."""
_MOST_LOGS: Final = 16
"""Logs that are looked at: partitions of a topic have the same schemas, and each log takes a file to open."""
_MOST_SCHEMAS: Final = 20
"""Schemas that are tried: a topic's keys have one as a rule, and some older ones."""
_PLAIN: Final = frozenset(("keyfold.Bytes", "keyfold.String"))
_JSON: Final = "keyfold.Json"


class KeyForms(Struct, frozen=True):
    """The bytes that each of some keys may be kept as, by key.

    `unread`: why a registry's schema of kept keys cannot be read, in which a key may be kept too; None if all can.
    """

    by_key: Mapping[bytes, Sequence[bytes]]
    unread: DataError | None = None


def look_up(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    keys: Sequence[bytes],
    topic: str | None = None,
    partition: int | None = None,
    *,
    typed: bool,
) -> KeyAnswer:
    """Looks `keys` up in what a connector keeps, or in a `topic` or `partition` of it; `typed`: as values as well.

    Raises UsageError if it has no such partition, and what `get` and `kept_forms` raise.
    """
    storage = connector_storage(worker, connector.name)
    chosen = partial(logs_of, connector=connector.name, topic=topic, partition=partition)

    def ask(wanted: Sequence[bytes]) -> KeyAnswer:
        return get(storage, connector, lambda: Catalog.open(storage, connector.name).state, wanted, chosen)

    def forms_of(answer: KeyAnswer) -> KeyForms:
        written = connector.chain_spec(worker.given).written_key
        return kept_forms(storage, written, answer.logs, answer.absent, resolve)

    answer = ask(keys)
    return with_forms(answer, keys, forms_of, ask) if typed else answer


def kept_forms(
    storage: Storage,
    written: ClassSpec,
    logs: Sequence[PartitionLog],
    keys: Sequence[bytes],
    resolve: Resolve,
    outlines: FileOutlines = OUTLINES,
) -> KeyForms:
    """Returns the bytes that each of `keys` may be kept as: they are JSON, or text that is itself the key.

    There are none if the connector's keys are bytes or text. `outlines` verify the files that are read. Raises
    StorageError, RegistryError, DamagedFileError, UnverifiedError.
    """
    converter_class = CONVERTERS.find(written.name).of
    if converter_class.java in _PLAIN:
        return KeyForms({key: [] for key in keys})
    unread: list[DataError] = []
    with closing(made_converter(written, resolve, is_key=True)) as converter:
        samples = list(islice(_samples(storage, converter, logs[:_MOST_LOGS], outlines, unread), _MOST_SCHEMAS))
        of_json = converter_class.java == _JSON
        by_key = {key: list(dict.fromkeys(_forms(converter, samples, key, spaced=of_json))) for key in keys}
    return KeyForms(by_key, next(iter(unread), None))


def with_forms(
    answer: KeyAnswer,
    keys: Sequence[bytes],
    forms_of: Callable[[KeyAnswer], KeyForms],
    ask: Callable[[Sequence[bytes]], KeyAnswer],
) -> KeyAnswer:
    """Returns the answer to `keys` and to the forms (`kept_forms`) that those of them have of which nothing is kept.

    `answer` is the one to `keys` alone. All that is returned comes from one look-up, and so holds at the same offsets.
    Raises DataError if a schema cannot be read in which an absent key may be kept, and as `ask` and `forms_of` do.
    """
    if not answer.absent:
        return answer
    forms = forms_of(answer)
    every = [form for some in forms.by_key.values() for form in some]
    both = ask([*keys, *every]) if every else answer
    missing = set(both.absent)
    absent = tuple(key for key in keys if missing.issuperset((key, *forms.by_key.get(key, ()))))
    if absent and forms.unread is not None:
        raise DataError(
            f"Whether a key is kept is not known, as a schema of kept keys cannot be read: {forms.unread.message}",
            "Correct the schema in the registry, or give the key as bytes in hexadecimal digits.",
        )
    return replace(both, absent=absent)


def _samples(
    storage: Storage,
    converter: Converter,
    logs: Iterable[PartitionLog],
    outlines: FileOutlines,
    unread: list[DataError],
) -> Iterator[bytes]:
    """Yields kept keys, one for each schema; `unread` takes why one that a registry should have cannot be read."""
    heads: set[bytes] = set()
    schemas: list[Schema | None] = []
    for log in logs:
        for key in islice(_keys(storage, log, outlines), _LOOKED_AT):
            head = (key or b"")[: converter.schema_bytes or None]
            if key is None or head in heads or len(key) > MOST_READ:
                continue
            heads.add(head)
            try:
                schema = converter.schema_of([], key)
            except DataError as error:
                if _names_schema(converter, key):
                    unread.append(error)
                continue
            if converter.schema_bytes or schema not in schemas:
                schemas.append(schema)
                yield key


def _names_schema(converter: Converter, key: bytes) -> bool:
    """Returns whether a key has the id of a registry's schema: nothing is wrong with the key itself then."""
    from connectors.converters.registered import RegisteredConverter

    if not isinstance(converter, RegisteredConverter):
        return False
    try:
        converter.wire.read((), key)
    except DataError:
        return False
    return True


def _keys(storage: Storage, log: PartitionLog, outlines: FileOutlines) -> Iterator[bytes | None]:
    """Yields the keys of a log by offset; each file is verified before its first one."""
    for file_range in whole(log).file_ranges:
        outlines.check_file(storage, file_range.file)
        for batch in reader.read_file_range(storage, file_range, ("key",)):
            yield from batch["key"].to_pylist()


def _forms(converter: Converter, samples: Iterable[bytes], key: bytes, *, spaced: bool) -> Iterator[bytes]:
    """Yields `key` as the converter writes it; with `spaced` also as Python's producers write JSON, with spaces."""
    for sample in samples:
        for value in _values(key):
            try:
                data = converter.written_like(sample, value)
            except RegistryError:
                raise
            except Exception as error:  # noqa: BLE001  # the value is not of this schema
                refuse_machine(error)
                continue
            if data is not None:
                yield data
                if spaced:
                    yield json.dumps(json.loads(data)).encode()


def _values(key: bytes) -> Iterator[Any]:
    """Yields what `key` may stand for: the text that it is, and what that is as JSON."""
    yield key.decode(errors="replace")
    with suppress(ValueError, RecursionError):
        yield json.loads(key)

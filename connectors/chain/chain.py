"""Applies a connector's converters and transforms to records that were read, before anything of them is folded.

Only what a step looks at is converted, and only what a step has changed is converted back: other bytes stay as they
are. A record that cannot be converted or transformed is rejected, alone, and keeps the bytes that it came with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from compactor.errors import DEFECT, IngestError, KeyfoldError
from compactor.model.record import HEADERS, KEY_ENCODING, KEY_IDENTITY, RUN, SOURCE, TopicPartition
from compactor.secret_forms import without_parts
from connectors.chain.key_identity import Compared, KeyIdentity, key_identity
from connectors.chain.spec import (
    ChainSpec,
    Resolve,
    StepSpec,
    made,
    made_converter,
    options_of,
    passwords_of,
    texts_of,
)
from connectors.converters.converter import Converter
from connectors.converters.header_converters import header_converter
from connectors.converters.names import HEADER_CONVERTERS
from connectors.converters.wire_format import NAMING_HEADERS
from connectors.data.record import ConnectRecord, Header
from connectors.errors import PortionLateError, RegistryError
from connectors.known_values import hide_in, without_credentials
from connectors.registry.patience import Patience
from connectors.rejection import Rejection, Stage, unexpected
from connectors.transforms.names import PREDICATES, TRANSFORMS
from connectors.transforms.transform import Predicate, Side, Transform

NO_KEY: Final = "null key"
"""Why a record is rejected that has no key once it is transformed: it is the latest of no key."""
NO_TIMESTAMP: Final = -1
"""What a record of an old message format has in place of a timestamp (`RecordBatch.NO_TIMESTAMP`)."""
_LONGEST: Final = 2_000
"""Characters that are kept of what is said to be wrong: a converter may quote a whole record."""
_SEARCHED: Final = 40_000
"""Characters of it in which secrets are looked for, before it is cut."""
_LONGEST_FORM: Final = 16_000
"""Characters at the end of these that are left out, as a secret may be cut there: one of 4,096 as a URL writes it."""
_RANGE: Final = SOURCE.get_field_index("range")
_COMPARED: Final = pa.schema([*SOURCE, RUN.field(KEY_IDENTITY), RUN.field(KEY_ENCODING)])


class RejectedError(Exception):
    """A record cannot be converted or transformed; `rejection` says at which stage, and why."""

    def __init__(self, stage: Stage, class_name: str, error: Exception) -> None:
        super().__init__(stage, class_name, error)
        self._stage = stage
        self._class_name = class_name
        self._error = error

    @property
    def rejection(self) -> Rejection:
        """Why the record is rejected."""
        return self.without_values(without_credentials)

    def without_values(self, hide: Callable[[str], str]) -> Rejection:
        """Returns why the record is rejected, without what `hide` takes out of a text."""
        error = self._error
        said, action = (error.message, error.action) if isinstance(error, KeyfoldError) else unexpected(error)
        shown = hide(said) if len(said) <= _SEARCHED else hide(said[:_SEARCHED])[:-_LONGEST_FORM]
        message = f"{shown[:_LONGEST]} {hide(action)}".rstrip()
        # A text that was read may hold half of a pair of surrogates, which UTF-8 cannot.
        message = message.encode("utf-8", "replace").decode()
        return Rejection(self._stage, self._class_name, type(error).__name__, message)


class TransformStage(Struct):
    """A transform, and the predicate by which it is applied."""

    name: str
    transform: Transform
    predicate: Predicate | None
    predicate_name: str
    negate: bool

    def of(self, record: ConnectRecord) -> ConnectRecord | None:
        """Returns what becomes of `record`. Raises RejectedError, RegistryError."""
        try:
            if self.predicate is not None and self.predicate.test(record) is self.negate:
                return record
        except RegistryError:
            raise
        except Exception as error:
            raise RejectedError(Stage.TRANSFORMATION, self.predicate_name, error) from error
        try:
            return self.transform.apply(record)
        except RegistryError:
            raise
        except Exception as error:
            raise RejectedError(Stage.TRANSFORMATION, self.name, error) from error


class Conversion(Struct):
    """The converter of a record's keys or values; `reads`: whether a step looks at them."""

    name: str
    converter: Converter
    stage: Stage
    reads: bool

    def read(self, topic: str, headers: list[Header], data: bytes | None) -> tuple[Any, Any]:
        """Returns schema and value of `data`, or `data` itself if no step looks at it.

        Raises RejectedError, RegistryError.
        """
        if not self.reads:
            return None, data
        try:
            return self.converter.to_connect_data(topic, headers, data)
        except RegistryError:
            raise
        except Exception as error:
            raise RejectedError(self.stage, self.name, error) from error

    def write(self, topic: str, headers: list[Header], schema: Any, value: Any) -> bytes | None:
        """Returns the bytes of `value`. Raises RejectedError, RegistryError."""
        try:
            return self.converter.from_connect_data(topic, headers, schema, value)
        except RegistryError:
            raise
        except Exception as error:
            raise RejectedError(self.stage, self.name, error) from error


class Chain:
    """Everything that is done with the records of one connector before they are folded; used by one thread at a time.

    `keyed`: a record without a key is rejected. `filtered` counts, by partition, the records that were dropped since
    their last range report.
    """

    def __init__(self, spec: ChainSpec, resolve: Resolve, *, keyed: bool = True) -> None:
        predicates = {alias: made(class_spec, PREDICATES, resolve) for alias, class_spec in spec.predicates.items()}
        self._steps = tuple(_transform_stage(step, predicates, spec, resolve) for step in spec.steps)
        reads = _reads(self._steps)
        self._key = _conversion(spec, Side.KEY, reads, resolve)
        self._value = _conversion(spec, Side.VALUE, reads, resolve)
        self._header_name = spec.header.name
        kind = HEADER_CONVERTERS.find(spec.header.name).of.load()
        self._header = header_converter(kind, options_of(spec.header, HEADER_CONVERTERS, resolve))
        self._ask_only()
        self._identity = key_identity(spec.identity, self._key.converter)
        self._output = spec.output
        # The output topic of each topic that records had so far, as `output.topic` makes it; one entry a topic.
        self._outputs: dict[str, str] = {}
        # The texts of all settings, and of the passwords: what is said to be wrong is shown without their secrets.
        self._settings = texts_of(spec)
        self._passwords = passwords_of(spec)
        self._keyed = keyed
        # `apply` adds to it, and `_reported` takes the count of a partition away when its range is reported.
        self.filtered: Counter[TopicPartition] = Counter()
        # The limit of the block that has borrowed the chain now (`wait_with`); without one nothing is limited.
        self._patience = Patience()

    def wait_with(self, patience: Patience) -> None:
        """Sets the limit of the work from now on to `patience`. PortionLateError is raised once it is used up."""
        self._patience = patience
        self._key.converter.wait_with(patience)
        self._value.converter.wait_with(patience)

    def _ask_only(self) -> None:
        """Tells the value's converter what the first step that looks at values leaves out."""
        first = next((step for step in self._steps if Side.VALUE in _reads([step])), None)
        if first is not None and first.predicate is None:
            self._value.converter.ask_only(first.transform.fields_of)

    def close(self) -> None:
        """Closes its converters."""
        self._key.converter.close()
        self._value.converter.close()

    def through(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields what becomes of `batches` (record.SOURCE): records, and range reports that say what was filtered.

        A batch holds records or range reports. Raises RegistryError: nothing of the record is known then.
        """
        for batch in batches:
            reports = batch.num_rows - batch.column(_RANGE).null_count
            if reports == 0:
                yield self.apply(batch)
            elif reports == batch.num_rows:
                yield self._reported(batch)
            else:
                raise IngestError("Records and range reports came in one batch.", DEFECT)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the records that `batch` becomes, in its order; those that were rejected before stay as they are.

        If keys have an identity, the columns of `record.RUN` for it follow those of `record.SOURCE`. Raises
        RegistryError, PortionLateError.
        """
        rows = _Rows(batch)
        try:
            if self._steps:
                for row in range(batch.num_rows):
                    self._patience.check()
                    if rows.rejected[row] is None:
                        self._transform(rows, row)
            self.filtered.update(rows.dropped_partitions())
            if self._identity is not None:
                self._compare(rows, self._identity)
        except RegistryError as error:
            raise type(error)(self._hidden(error.message), self._hidden(error.action)) from None
        return rows.batch()

    def _why(self, error: RejectedError) -> str:
        return str(error.without_values(self._hidden))

    def _hidden(self, text: str) -> str:
        """Hides the chain's secrets; those that a registry has put into a schema also in part, as names are cut."""
        hidden = without_credentials(hide_in(text, self._settings, self._passwords))
        for conversion in (self._key, self._value):
            hidden = without_parts(hidden, conversion.converter.repeated())
        return hidden

    def _compare(self, rows: _Rows, identity: KeyIdentity) -> None:
        """Finds the identity of each key. A record with a key that has none is rejected and restored as it was read."""
        rows.compared = [None] * len(rows.keys)
        for row, key in enumerate(rows.keys):
            self._patience.check()
            if key is None or rows.rejected[row] is not None:
                continue
            try:
                rows.compared[row] = identity.of(rows.headers_of(row), key)
            except RegistryError as error:
                raise rows.located(error, row) from error
            except Exception as error:  # noqa: BLE001  # a schema may hold anything: it is the record's own
                rows.rejected[row] = self._why(RejectedError(Stage.KEY_CONVERTER, identity.name, error))
                rows.restore(row)

    def _transform(self, rows: _Rows, row: int) -> None:
        """Puts what becomes of a row in its place, or why it is rejected."""
        topic, headers, ms = rows.topics[row], list(rows.headers_of(row)), rows.timestamps[row]
        try:
            key_schema, key = self._key.read(topic, headers, rows.keys[row])
            value_schema, value = self._value.read(topic, headers, rows.values[row])
            before = ConnectRecord(
                topic, rows.partitions[row], rows.offsets[row], None if ms == NO_TIMESTAMP else ms,
                key_schema, key, value_schema, value, tuple(headers),
            )  # fmt: skip
            record = self._through_steps(before)
            if record is None:
                rows.drop(row)
            else:
                self._put(rows, row, before, record)
        except RejectedError as error:
            rows.rejected[row] = self._why(error)
        except RegistryError as error:
            raise rows.located(error, row) from error

    def _through_steps(self, record: ConnectRecord) -> ConnectRecord | None:
        current: ConnectRecord | None = record
        for step in self._steps:
            if current is None:
                break
            current = step.of(current)
        return current

    def _put(self, rows: _Rows, row: int, before: ConnectRecord, record: ConnectRecord) -> None:
        """Writes what has changed: all of it, or nothing if a part is refused."""
        headers = list(record.headers)
        topic = self._output_of(record.topic)
        key, value = rows.keys[row], rows.values[row]
        if record.key is not before.key or record.key_schema is not before.key_schema:
            headers = _without(headers, NAMING_HEADERS["key"])
            key = self._key.write(topic, headers, record.key_schema, record.key)
        if record.value is not before.value or record.value_schema is not before.value_schema:
            headers = _without(headers, NAMING_HEADERS["value"])
            value = self._value.write(topic, headers, record.value_schema, record.value)
        if key is None and self._keyed:
            rows.rejected[row] = NO_KEY
            return
        if tuple(headers) != before.headers:
            rows.set_headers(row, [self._encoded(topic, header) for header in headers])
        rows.set(row, key, value)

    def _output_of(self, topic: str) -> str:
        output = self._outputs.get(topic)
        if output is None:
            output = self._outputs[topic] = self._output.replace("${topic}", topic)
        return output

    def _encoded(self, topic: str, header: Header) -> tuple[str, bytes | None]:
        if not header.is_new:
            return header.key, header.value
        try:
            return header.key, self._header.from_connect_header(topic, header.key, header.schema, header.value)
        except Exception as error:
            raise RejectedError(Stage.HEADER_CONVERTER, self._header_name, error) from error

    def _reported(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns range reports that say how many records of their range were filtered."""
        rows = batch.to_pylist()
        for row in rows:
            row["range"]["filtered"] = self.filtered.pop(TopicPartition(row["topic"], row["partition"]), 0)
        return pa.RecordBatch.from_pylist(rows, schema=SOURCE)


class _Rows:
    """The rows of a batch, as lists of which single elements are replaced."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.topics: list[str] = batch["topic"].to_pylist()
        self.partitions: list[int] = batch["partition"].to_pylist()
        self.offsets: list[int] = batch["offset"].to_pylist()
        self.timestamps: list[int] = batch["timestamp"].to_pylist()
        # `set` and `restore` replace elements of the next two lists; the batch itself keeps what was read.
        self.keys: list[bytes | None] = batch["key"].to_pylist()
        self.values: list[bytes | None] = batch["value"].to_pylist()
        self.rejected: list[str | None] = batch["rejected"].to_pylist()
        has_headers = len(pc.list_flatten(batch["headers"])) > 0
        # None if no row has a header, as in most topics: no list is made for each row then.
        self._headers: list[Any] | None = batch["headers"].to_pylist() if has_headers else None
        # Whether a row has got other headers; if not, `batch` returns the column that was read.
        self._changes_headers = False
        # The numbers of the rows that a transform has dropped; `batch` leaves them out.
        self._dropped: set[int] = set()
        self.compared: list[Compared | None] | None = None

    def headers_of(self, row: int) -> Sequence[Header]:
        """Returns the headers of a row as they were read."""
        own = self._headers[row] if self._headers is not None else None
        return [Header(header["key"], header["value"]) for header in own] if own else ()

    def located(self, error: RegistryError, row: int) -> RegistryError:
        """Returns `error` with the place of its record, unless it is the whole portion that is late."""
        if isinstance(error, PortionLateError):
            return error
        where = f"topic {self.topics[row]}, partition {self.partitions[row]}, offset {self.offsets[row]}"
        return type(error)(f"{error.message} It was asked for the record at {where}.", error.action)

    def set(self, row: int, key: bytes | None, value: bytes | None) -> None:
        """Replaces key and value of a row."""
        self.keys[row] = key
        self.values[row] = value

    def set_headers(self, row: int, headers: Sequence[tuple[str, bytes | None]]) -> None:
        """Replaces the headers of a row."""
        if self._headers is None:
            self._headers = [None] * len(self.keys)
        self._headers[row] = [{"key": key, "value": value} for key, value in headers]
        self._changes_headers = True

    def restore(self, row: int) -> None:
        """Makes a row again what was read."""
        self.set(row, self._batch["key"][row].as_py(), self._batch["value"][row].as_py())
        if self._changes_headers and self._headers is not None:
            self._headers[row] = self._batch["headers"][row].as_py()

    def drop(self, row: int) -> None:
        """Leaves a row out."""
        self._dropped.add(row)

    def dropped_partitions(self) -> Iterator[TopicPartition]:
        """Yields the partition of each row that is left out."""
        return (TopicPartition(self.topics[row], self.partitions[row]) for row in self._dropped)

    def batch(self) -> pa.RecordBatch:
        """Returns the rows that are left, as they are now."""
        changed: dict[str, pa.Array] = {
            "key": pa.array(self.keys, pa.binary()),
            "value": pa.array(self.values, pa.binary()),
            "rejected": pa.array(self.rejected, pa.string()),
        }
        if self._changes_headers:
            changed["headers"] = pa.array([headers or [] for headers in self._headers or ()], HEADERS)
        columns = [changed.get(name, self._batch[name]) for name in SOURCE.names]
        batch = pa.RecordBatch.from_arrays(columns, schema=SOURCE)
        if self.compared is not None:
            pairs = [compared or (None, None) for compared in self.compared]
            identities, encodings = zip(*pairs, strict=True) if pairs else ((), ())
            more = [pa.array(identities, pa.binary()), pa.array(encodings, pa.string())]
            batch = pa.RecordBatch.from_arrays([*columns, *more], schema=_COMPARED)
        if self._dropped:
            kept = [row for row in range(len(self.keys)) if row not in self._dropped]
            batch = batch.take(pa.array(kept, pa.int64()))
        return batch


def _without(headers: list[Header], names: frozenset[str]) -> list[Header]:
    return [header for header in headers if header.key not in names]


def _transform_stage(spec: StepSpec, predicates: dict[str, Any], chain: ChainSpec, resolve: Resolve) -> TransformStage:
    name = chain.predicates[spec.predicate].name if spec.predicate else ""
    transform = made(spec.of, TRANSFORMS, resolve)
    assert isinstance(transform, Transform)
    predicate = predicates[spec.predicate] if spec.predicate else None
    return TransformStage(spec.of.name, transform, predicate, name, spec.negate)


def _reads(steps: Iterable[TransformStage]) -> frozenset[Side]:
    """Returns what of a record any step looks at, or its predicate."""
    sides = (part.reads for step in steps for part in (step.transform, step.predicate) if part is not None)
    return frozenset().union(*sides)


def _conversion(spec: ChainSpec, side: Side, reads: frozenset[Side], resolve: Resolve) -> Conversion:
    own = spec.key if side is Side.KEY else spec.value
    stage = Stage.KEY_CONVERTER if side is Side.KEY else Stage.VALUE_CONVERTER
    converter = made_converter(own, resolve, is_key=side is Side.KEY)
    return Conversion(own.name, converter, stage, side in reads)

"""Applies a connector's converters and transforms to records that were read, before anything of them is folded.

Only what a step looks at is converted, and only what a step has changed is converted back: other bytes stay as they
are, unless the output has a converter of its own, which writes all. A value that its converter reads as null becomes
one, whether a step looks at it or not (`null_values`). A record that cannot be converted or transformed is rejected,
alone, and keeps the bytes that it came with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import DEFECT, IngestError
from compactor.model.record import NULL_KEY, ORDER_VALUE, SOURCE, TopicPartition
from connectors.chain import quoted_settings
from connectors.chain.added_headers import AddedHeaders
from connectors.chain.compared_keys import Compared
from connectors.chain.conversion import RejectedError, conversion_of
from connectors.chain.key_identity import KeyIdentity, key_identity
from connectors.chain.null_values import with_tombstones
from connectors.chain.order_field import OrderField
from connectors.chain.quoted_settings import Names
from connectors.chain.routing import output_name
from connectors.chain.rows import Piece, Rows
from connectors.chain.spec import ChainSpec, Resolve, made, options_of, steps_of_records
from connectors.chain.task_growth import TaskGrowth
from connectors.chain.truncates import Truncates, refusal
from connectors.chain.unwrapped import Done, UnwrappingChain
from connectors.chain.written_keys import WrittenKeys
from connectors.converters.header_converters import header_converter
from connectors.converters.names import HEADER_CONVERTERS
from connectors.converters.wire_format import NAMING_HEADERS
from connectors.data.bounds import check_size
from connectors.data.collector import uncollected
from connectors.data.growth import Room, most_written, too_long
from connectors.data.record import ConnectRecord, Header
from connectors.data.schema import Schema
from connectors.data.unwrapping import EventForms, Unwrapper
from connectors.errors import DataError, RegistryError
from connectors.machine_errors import refuse_machine
from connectors.registry.patience import Patience
from connectors.rejection import Stage
from connectors.transforms.names import PREDICATES, TRANSFORMS
from connectors.transforms.transform import Predicate, Side, Transform, TruncateError

NO_TIMESTAMP: Final = -1
"""What a record of an old message format has in place of a timestamp (`RecordBatch.NO_TIMESTAMP`)."""
_PIECE_BYTES: Final = 16 << 20
"""Bytes of keys, values and headers after which what a batch becomes is handed on: as many as a batch that was read
has (`ReadLimits.batch_bytes`). A batch of 5,000 small records may become one of gigabytes."""
_LARGE: Final = 64 << 10
"""Bytes of a key and its value above which the limit is asked between the parts of a record's way, too: a smaller
one takes some 0.1 s at most, and is asked about once."""
_NAMING: Final = frozenset().union(*NAMING_HEADERS.values())
_RANGE: Final = SOURCE.get_field_index("range")


class TransformStage(Struct):
    """A transform, and the predicate by which it is applied; `unseen`: the settings for which no error is shown."""

    name: str
    transform: Transform
    predicate: Predicate | None
    predicate_name: str
    negate: bool
    unseen: Names = ()

    def of(self, record: ConnectRecord) -> ConnectRecord | None:
        """Returns what becomes of `record`. Raises RejectedError, TruncateError, RegistryError."""
        try:
            if self.predicate is not None and self.predicate.test(record) is self.negate:
                return record
        except RegistryError:
            raise
        except Exception as error:
            refuse_machine(error)
            raise RejectedError(Stage.TRANSFORMATION, self.predicate_name, error, self.unseen) from error
        try:
            return self.transform.apply(record)
        except RegistryError:
            raise
        except TruncateError as error:
            error.step = self.name
            raise
        except Exception as error:
            refuse_machine(error)
            raise RejectedError(Stage.TRANSFORMATION, self.name, error, self.unseen) from error


class Chain:
    """Everything that is done with the records of one connector before they are folded; used by one thread at a time.

    `keyed`: a record without a key is rejected. With `is_by_columns`, `columns` does what can be done for many records
    at once; None: nothing can. `filtered` counts, by partition, the records that were dropped since
    their last range report, `truncated` has those that were truncates.
    """

    def __init__(self, spec: ChainSpec, resolve: Resolve, *, keyed: bool = True, is_by_columns: bool = True) -> None:
        predicates = {alias: made(class_spec, PREDICATES, resolve) for alias, class_spec in spec.predicates.items()}
        count = len(steps_of_records(spec))
        self._steps = tuple(_transform_stage(at, predicates, spec, resolve) for at in range(count))
        reads = _reads(self._steps)
        self._order = OrderField(spec.order_path) if spec.order_path else None
        self._key = conversion_of(spec, Side.KEY, resolve, reads=Side.KEY in reads)
        self._value = conversion_of(spec, Side.VALUE, resolve, reads=Side.VALUE in reads or self._order is not None)
        self._header_name = spec.header.name
        kind = HEADER_CONVERTERS.find(spec.header.name).of.load()
        self._header = header_converter(kind, options_of(spec.header, HEADER_CONVERTERS, resolve))
        self._ask_only()
        transforms = [step.transform for step in self._steps]
        self._room = Room(sum(each.added for each in transforms), prod(each.copies for each in transforms))
        self._identity = key_identity(spec.identity, self._key.writer)
        self._transforms = bool(self._steps) or self._key.rewrites or self._value.rewrites or self._order is not None
        self._output = spec.output
        self._unseen_headers = quoted_settings.of_headers(spec)
        self._keyed = keyed
        self._refusal = partial(refusal, spec)
        # `apply` adds to it, and `_reported` takes the count of a partition away when its range is reported.
        self.filtered: Counter[TopicPartition] = Counter()
        # By partition the truncates that have come; `_reported` takes them away, too.
        self.truncated: dict[TopicPartition, Truncates] = {}
        # The limit of the block that has borrowed the chain now (`wait_with`); without one nothing is limited.
        self._patience = Patience()
        self.columns = self._by_columns() if is_by_columns else None

    def _by_columns(self) -> UnwrappingChain | None:
        """Returns what does by columns what this chain does; None if it does more than that can."""
        keys = WrittenKeys(self._key, self._room) if self._key.rewrites else None
        if self._order is not None or (self._key.reads and not self._key.rewrites) or (keys and keys.asks_registry):
            return None
        unwrapper = self._unwrapper() if self._steps else None
        if unwrapper is None and (self._steps or self._value.rewrites):
            return None
        most = min(_LARGE, self._value.most)
        headers = AddedHeaders(self._header.from_connect_header)
        return UnwrappingChain(unwrapper, self._output_of, keys, headers, self._identity, most, self._check_limit)

    def _unwrapper(self) -> Unwrapper | None:
        """Returns what does by columns what the steps do with values; None if there is nothing."""
        unwrapping = self._steps[0].transform.unwrapping
        if len(self._steps) > 1 or self._steps[0].predicate is not None or unwrapping is None:
            return None
        room, forms_of = self._room, unwrapping.forms

        def forms_that_fit(schema: Schema) -> EventForms | None:
            forms = forms_of(schema)
            if forms is None or any(header.name in _NAMING for header in forms.headers):
                return None
            schemas = [form.schema for form in (forms.changed, forms.deleted) if form is not None]
            schemas += [header.schema for header in forms.headers]
            return forms if all(room.holds(each, _LARGE) for each in schemas) else None

        return self._value.converter.unwrapper(replace(unwrapping, forms=forms_that_fit), self._value.writer)

    def _check_limit(self) -> None:
        self._patience.check()  # that of the block that has borrowed the chain now

    def wait_with(self, patience: Patience) -> None:
        """Sets the limit of the work from now on to `patience`. PortionLateError is raised once it is used up."""
        self._patience = patience
        self._key.wait_with(patience)
        self._value.wait_with(patience)

    def _ask_only(self) -> None:
        """Tells the value's converter what the first step that looks at values, and the order, leave out."""
        first = next((step for step in self._steps if Side.VALUE in _reads([step])), None)
        order = frozenset[str]() if self._order is None else frozenset({self._order.outermost})
        if first is not None and first.predicate is None:
            asked = first.transform.fields_of
            self._value.converter.ask_only(lambda schema: None if (own := asked(schema)) is None else own | order)
        elif first is None and order and not self._value.rewrites:
            self._value.converter.ask_only(lambda _: order)

    def close(self) -> None:
        """Closes its converters."""
        self._key.close()
        self._value.close()

    def through(self, batches: Iterable[pa.RecordBatch], growth: TaskGrowth | None = None) -> Iterator[pa.RecordBatch]:
        """Yields what becomes of `batches` (record.SOURCE): records, and range reports that say what was filtered.

        A batch holds records or range reports. If `growth` is full, no more records of a batch are looked at, and it
        is told how many those are. Raises RegistryError: nothing of the record is known then.
        """
        for batch in batches:
            reports = batch.num_rows - batch.column(_RANGE).null_count
            if reports == 0:
                yield from self._in_turn(self._pieces(batch, growth or TaskGrowth()))
            elif reports == batch.num_rows:
                yield self._reported(batch)
            else:
                raise IngestError("Records and range reports came in one batch.", DEFECT)

    def _in_turn(self, pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields `pieces`; each is made in a turn of the chain's, and taken by the consumer in none."""
        while True:
            with self._patience.working():
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the records that `batch` becomes, in its order; those that were rejected before stay as they are.

        If keys have an identity, or a field is the order, the columns of `record.RUN` for it follow those of
        `record.SOURCE`. Raises RegistryError, PortionLateError.
        """
        return pa.concat_batches(list(self._pieces(batch, TaskGrowth())))

    def _pieces(self, batch: pa.RecordBatch, growth: TaskGrowth) -> Iterator[pa.RecordBatch]:
        """Yields what `apply` returns, in pieces of about _PIECE_BYTES, until `growth` is full."""
        if not self._transforms and self._identity is None:
            yield self._with_tombstones(batch)
            return
        done = None
        if self.columns is not None:
            done = self.columns.of(batch if self._value.reads else self._with_tombstones(batch))
        for piece in self._by_rows(batch, growth) if done is None else self._with_rest(batch, growth, done):
            growth.made += piece.made
            if self._order is not None:
                growth.ordered += pc.sum(pc.binary_length(piece.batch[ORDER_VALUE])).as_py() or 0
            yield piece.batch
            if piece.end < batch.num_rows and growth.is_full:
                growth.unused = batch.num_rows - piece.end
                return

    def _with_rest(self, batch: pa.RecordBatch, growth: TaskGrowth, done: Done) -> Iterator[Piece]:
        """Yields what `batch` becomes, of which the most is `done`, in pieces as long as the rest of it takes."""
        first = 0
        for piece in self._by_rows(batch.take(pa.array(done.rest)), growth):
            end = int(done.rest[piece.end]) if piece.end < len(done.rest) else batch.num_rows
            self.filtered.update(done.dropped_partitions(batch, first, end))
            yield done.merged(first, end, piece)
            first = end

    def _by_rows(self, batch: pa.RecordBatch, growth: TaskGrowth) -> Iterator[Piece]:
        """Yields what `batch` becomes, record by record, in pieces of about _PIECE_BYTES.

        If the time of `growth` is over, so is a piece.
        """
        rows = Rows(batch, is_compared=self._identity is not None, is_ordered=self._order is not None)
        known: list[tuple[bytes | None, Compared | None]] = [(None, None)] * batch.num_rows
        if self._identity is not None:
            known = [*zip(rows.keys, self._identity.of_many(batch["key"]).whole().each(), strict=True)]
        for row in range(batch.num_rows):
            self._patience.check()
            if len(rows.keys[row] or b"") + len(rows.values[row] or b"") > _LARGE:
                # What it makes is let go at its end, without a pass of the collector.
                uncollected(partial(self._row, rows, row, *known[row]))
            else:
                self._row(rows, row, *known[row])
            is_over = growth.is_over  # looked at for each record, as each may take long
            if (is_over or rows.written > _PIECE_BYTES) and row + 1 < batch.num_rows:
                yield self._piece(rows, row + 1)
        yield self._piece(rows, batch.num_rows)

    def _row(self, rows: Rows, row: int, read: bytes | None, known: Compared | None) -> None:
        """Puts what becomes of a row in its place, with the identity of its key; `read` and `known`: see `_compare`."""
        if self._transforms and rows.rejected[row] is None:
            self._transform(rows, row)
        if self._identity is not None and rows.rejected[row] is None:
            self._compare(rows, self._identity, row, read, known)

    def _piece(self, rows: Rows, end: int) -> Piece:
        """Returns what the rows before `end` have become, without those that were returned before."""
        self.filtered.update(rows.dropped_partitions())
        piece = rows.take(end)
        return piece if self._value.reads else piece._replace(batch=self._with_tombstones(piece.batch))

    def _with_tombstones(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return with_tombstones(batch, self._value.converter, self._is_null)

    def _is_null(self, headers: Sequence[Header], value: bytes) -> bool:
        self._patience.check()
        return self._value.is_null(headers, value)

    def _compare(self, rows: Rows, identity: KeyIdentity, row: int, read: bytes | None, known: Compared | None) -> None:
        """Finds the identity of the key of a row, of which the key that was `read` is compared by `known`, if it is.

        A record with a key that has none is rejected and restored as it was read.
        """
        key = rows.keys[row]
        if key is None:
            return
        try:
            check_size(len(key), self._key.most)
            headers = rows.headers_of(row)
            if known is None or key is not read or any(header.key in _NAMING for header in headers):
                known = identity.of(headers, key)
            rows.set_compared(row, known)
        except RegistryError as error:
            raise rows.located(error, row) from error
        except Exception as error:  # noqa: BLE001  # a schema may hold anything: it is the record's own
            refuse_machine(error)
            rows.rejected[row] = _why(
                RejectedError(Stage.KEY_CONVERTER, identity.name, error, self._key.unseen_written)
            )
            rows.restore(row)

    def _transform(self, rows: Rows, row: int) -> None:
        """Puts what becomes of a row in its place, or why it is rejected."""
        topic, ms = rows.topics[row], rows.timestamps[row]
        key_data, value_data = rows.keys[row], rows.values[row]
        is_large = len(key_data or b"") + len(value_data or b"") > _LARGE
        try:
            headers = list(rows.headers_of(row))
            key_schema, key = self._key.read(topic, headers, key_data)
            value_schema, value = self._value.read(topic, headers, value_data)
            before = ConnectRecord(
                topic, rows.partitions[row], rows.offsets[row], None if ms == NO_TIMESTAMP else ms,
                key_schema, key, value_schema, value, tuple(headers),
            )  # fmt: skip
            record = self._through_steps(before, is_large=is_large)
            if is_large:
                self._patience.check()
            if record is None:
                rows.drop(row)
            else:
                self._put(rows, row, before, record)
        except TruncateError as error:
            self._truncate(rows, row, before, error)
        except RejectedError as error:
            rows.rejected[row] = _why(error)
        except DataError as error:  # of too many headers; what a step refuses is a RejectedError
            rows.rejected[row] = _why(RejectedError(Stage.HEADER_CONVERTER, self._header_name, error))
        except RegistryError as error:
            raise rows.located(error, row) from error

    def _truncate(self, rows: Rows, row: int, record: ConnectRecord, error: TruncateError) -> None:
        """Drops a truncate and counts it, or refuses it as a bad record."""
        order = None if self._order is None else self._order.of(record.value_schema, record.value, rows.values[row])
        if (why := self._refusal(order)) is not None:
            rows.rejected[row] = _why(RejectedError(Stage.TRANSFORMATION, error.step, why))
            return
        tp = TopicPartition(rows.topics[row], rows.partitions[row])
        self.truncated[tp] = self.truncated.get(tp, Truncates()).with_one(rows.offsets[row], order)
        rows.drop(row)

    def _through_steps(self, record: ConnectRecord, *, is_large: bool) -> ConnectRecord | None:
        current: ConnectRecord | None = record
        for step in self._steps:
            if current is None:
                break
            if is_large:
                self._patience.check()
            current = step.of(current)
        return current

    def _put(self, rows: Rows, row: int, before: ConnectRecord, record: ConnectRecord) -> None:
        """Writes what has changed: all of it, or nothing if a part is refused."""
        headers = list(record.headers)
        topic = self._output_of(record.topic)
        key, value = rows.keys[row], rows.values[row]
        size = len(key or b"") + len(value or b"")
        if self._key.rewrites or record.key is not before.key or record.key_schema is not before.key_schema:
            headers = _without(headers, NAMING_HEADERS["key"])
            key = self._key.write(topic, headers, record.key_schema, record.key, self._room, size)
        if self._value.rewrites or record.value is not before.value or record.value_schema is not before.value_schema:
            headers = _without(headers, NAMING_HEADERS["value"])
            value = self._value.write(topic, headers, record.value_schema, record.value, self._room, size)
        if record.value is None and value is not None and self._value.is_null(headers, value):
            value = None
        if key is None and self._keyed:
            rows.rejected[row] = NULL_KEY
            return
        if tuple(headers) != before.headers:
            rows.set_headers(row, self._encoded(topic, headers, size))
        rows.set(row, key, value)
        if self._order is not None:
            rows.set_order(row, self._order.of(before.value_schema, before.value, value))

    def _output_of(self, topic: str) -> str:
        """Returns the topic for which records of `topic` are written: the output's, or itself if none is published."""
        return output_name(self._output, topic) or topic

    def _encoded(self, topic: str, headers: Iterable[Header], size: int) -> list[tuple[str, bytes | None]]:
        """Returns headers with their bytes; `size`: the bytes of the record that was read. Raises RejectedError."""
        encoded: list[tuple[str, bytes | None]] = []
        left = most_written(size)
        for name, value, schema, is_new in headers:
            data = value
            if is_new:
                try:
                    self._room.check(size, schema, value)
                    data = self._header.from_connect_header(topic, name, schema, value)
                    left -= len(name) + len(data or b"")
                    if left < 0:
                        raise too_long(size)
                except Exception as error:
                    refuse_machine(error)
                    unseen = self._unseen_headers
                    raise RejectedError(Stage.HEADER_CONVERTER, self._header_name, error, unseen) from error
            encoded.append((name, data))
        return encoded

    def _reported(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns range reports that say how many records of their range were filtered, and which were truncates."""
        rows = batch.to_pylist()
        for row in rows:
            tp = TopicPartition(row["topic"], row["partition"])
            truncates = self.truncated.pop(tp, Truncates())
            row["range"] |= {"filtered": self.filtered.pop(tp, 0), **truncates.report()}
        return pa.RecordBatch.from_pylist(rows, schema=SOURCE)


def _why(error: RejectedError) -> str:
    return str(error.rejection)


def _without(headers: list[Header], names: frozenset[str]) -> list[Header]:
    return [header for header in headers if header.key not in names]


def _transform_stage(at: int, predicates: dict[str, Any], chain: ChainSpec, resolve: Resolve) -> TransformStage:
    spec = chain.steps[at]
    name = chain.predicates[spec.predicate].name if spec.predicate else ""
    transform = made(spec.of, TRANSFORMS, resolve)
    assert isinstance(transform, Transform)
    predicate = predicates[spec.predicate] if spec.predicate else None
    unseen = quoted_settings.of_steps(chain, at + 1)
    return TransformStage(spec.of.name, transform, predicate, name, spec.negate, unseen)


def _reads(steps: Iterable[TransformStage]) -> frozenset[Side]:
    """Returns what of a record any step looks at, or its predicate."""
    sides = (part.reads for step in steps for part in (step.transform, step.predicate) if part is not None)
    return frozenset().union(*sides)

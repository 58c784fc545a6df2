"""Does by columns what a chain does, if that is no more than taking the rows out of a batch of change events.

The records of which anything is unusual are left, and go through the chain one by one; what became of both is brought
into one order again (`merged`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compactor.model.record import SOURCE, TopicPartition
from connectors.chain.added_headers import AddedHeaders
from connectors.chain.compared_keys import LONGEST_AT_ONCE, Compared
from connectors.chain.key_identity import KeyIdentity
from connectors.chain.rows import COMPARED, MOST_HEADERS, Piece, located
from connectors.chain.written_keys import WrittenKeys
from connectors.converters.wire_format import NAMING_HEADERS
from connectors.data.unwrapping import Rows, Unwrapper
from connectors.errors import RegistryError

_KEY: Final = SOURCE.get_field_index("key")
_VALUE: Final = SOURCE.get_field_index("value")
_HEADERS: Final = SOURCE.get_field_index("headers")
_NAMING: Final = pa.array(sorted(frozenset().union(*NAMING_HEADERS.values())), pa.string())
_SHARE: Final = 2
"""If fewer than one in so many records of a batch is done by columns, all go through the chain one by one: to pick
some out and to merge them costs 0.3 us for each record of the batch."""

Places = NDArray[np.intp]
"""Rows of a batch, in rising order."""


class Done(NamedTuple):
    """What became of records at `places` of a batch. Those at `dropped` became nothing; those at `rest` are left."""

    batch: pa.RecordBatch
    places: Places
    dropped: Places
    rest: Places

    def merged(self, first: int, end: int, piece: Piece) -> Piece:
        """Returns what became of all records from `first` to `end`; `piece` is what became of those left."""
        low, high = np.searchsorted(self.places, (first, end))
        own = self.batch.slice(low, high - low)
        made = piece.made + sum(own[name].nbytes for name in ("key", "value", "headers"))
        others = self.rest[np.asarray(piece.rows, np.intp)]
        places = np.concatenate([self.places[low:high], others])
        if not len(others):
            return Piece(own, places.tolist(), end, made)
        merged = pa.concat_batches([own, piece.batch]).take(pa.array(np.argsort(places, kind="stable")))
        return Piece(merged, np.sort(places).tolist(), end, made)

    def dropped_partitions(self, batch: pa.RecordBatch, first: int, end: int) -> Iterator[TopicPartition]:
        """Yields the partition of each record of `batch` from `first` to `end` that became nothing."""
        low, high = np.searchsorted(self.dropped, (first, end))
        rows = pa.array(self.dropped[low:high])
        pairs = (batch[name].take(rows).to_pylist() for name in ("topic", "partition"))
        return (TopicPartition(*pair) for pair in zip(*pairs, strict=True))


class UnwrappingChain:
    """Does by columns what a chain of one transform does, or of none.

    `unwrapper`: None if values stay as they are. `output_of` returns for which topic a topic's is written. `keys`: what
    writes the keys, None if they stay as they are. `headers`: what adds headers. `most`: bytes of a key and its value
    together up to which a record is done so. `check` raises once the work has to end.
    """

    def __init__(
        self,
        unwrapper: Unwrapper | None,
        output_of: Callable[[str], str],
        keys: WrittenKeys | None,
        headers: AddedHeaders,
        identity: KeyIdentity | None,
        most: int,
        check: Callable[[], None],
    ) -> None:
        self._unwrapper = unwrapper
        self._output_of = output_of
        self._keys = keys
        self._headers = headers
        self._identity = identity
        self._most = most
        self._check = check

    def of(self, batch: pa.RecordBatch) -> Done | None:
        """Returns what becomes of the records of `batch`; None if most are left. Raises RegistryError."""
        self._check()
        made, done, dropped = self._with_rows(batch)
        if self._keys is not None:
            made, done = self._with_keys(self._keys, made, done)
            dropped &= done
        if _SHARE * np.count_nonzero(done) < batch.num_rows:
            return None
        places = np.flatnonzero(done & ~dropped)
        part = made if len(places) == batch.num_rows else made.take(pa.array(places))
        if self._identity is not None:
            part, is_compared = self._compared(self._identity, part)
            part, places = _kept(part, places, is_compared)
        is_left = np.ones(batch.num_rows, np.bool_)
        is_left[places] = is_left[dropped] = False
        return Done(part, places, np.flatnonzero(dropped), np.flatnonzero(is_left))

    def _with_keys(self, written: WrittenKeys, batch: pa.RecordBatch, done: Rows) -> tuple[pa.RecordBatch, Rows]:
        """Returns `batch` with keys as they are written, and which of its records are `done` yet.

        The key of a record that is dropped counts, too: if it cannot be read, the record is rejected.
        """
        rows = np.flatnonzero(done)
        keys = written.of(batch["key"].take(pa.array(rows)).to_pylist(), self._check)
        every = np.full(batch.num_rows, None, object)
        every[rows] = np.array([*keys, None], object)[:-1]
        is_there = np.zeros(batch.num_rows, np.bool_)
        is_there[rows] = [key is not None for key in keys]
        return batch.set_column(_KEY, SOURCE.field(_KEY), pa.array(every, pa.binary())), is_there

    def _with_rows(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Rows, Rows]:
        """Returns `batch` with rows as values, which of its records are done, and which of these are dropped."""
        may_be_done = self._may_be_done(batch)
        if self._unwrapper is None:
            return batch, may_be_done, np.zeros(batch.num_rows, np.bool_)
        topics = batch["topic"].dictionary_encode()
        names = [self._output_of(topic) for topic in topics.dictionary.to_pylist()]
        topic_of = topics.indices.to_numpy().astype(np.int64)
        done, dropped, values, added = self._unwrapper.of(names, topic_of, batch["value"], may_be_done)
        made = batch.set_column(_VALUE, SOURCE.field(_VALUE), values)
        if added:
            headers, is_bad = self._headers.to(batch["headers"], added)
            made, done = made.set_column(_HEADERS, SOURCE.field(_HEADERS), headers), done & ~is_bad
            dropped &= done
        return made, done, dropped

    def _may_be_done(self, batch: pa.RecordBatch) -> Rows:
        """Returns which records may be done by columns: what of them is not in their value is usual."""
        sizes = pc.add(pc.binary_length(batch["key"]), pc.fill_null(pc.binary_length(batch["value"]), 0))
        is_small = pc.fill_null(pc.less_equal(sizes, self._most), fill_value=False)  # null: there is no key
        may_be = pc.and_(pc.is_null(batch["rejected"]), is_small).to_numpy(zero_copy_only=False)
        headers = batch["headers"]
        names = pc.struct_field(pc.list_flatten(headers), "key")
        if len(names):
            may_be = may_be & ~pc.fill_null(
                pc.greater(pc.list_value_length(headers), MOST_HEADERS), fill_value=False
            ).to_numpy(zero_copy_only=False)
            is_naming = pc.is_in(names, _NAMING)
            may_be[pc.list_parent_indices(headers).filter(is_naming).to_numpy()] = False
        return may_be

    def _compared(self, identity: KeyIdentity, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Rows]:
        """Returns `batch` with what its keys are compared by, and of which records that is found."""
        compared = identity.of_many(batch["key"])
        rest = compared.rest
        if len(rest):
            keys = batch["key"].take(pa.array(rest)).to_pylist()
            compared.add_each(
                rest, [self._compared_by(identity, batch, *pair) for pair in zip(rest, keys, strict=True)]
            )
        whole = compared.whole()
        columns = [*batch.columns, whole.identity, whole.encoding]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*SOURCE, *COMPARED])), whole.is_known

    def _compared_by(self, identity: KeyIdentity, batch: pa.RecordBatch, row: int, key: bytes) -> Compared | None:
        """Returns what a key is compared by; None if that is long, or has to be found with its record."""
        self._check()
        try:
            compared = identity.of((), key)
        except RegistryError as error:
            place = (batch[name][row].as_py() for name in ("topic", "partition", "offset"))
            raise located(error, *place) from error
        except Exception:  # noqa: BLE001  # a schema may hold anything: the chain says what is wrong with the record
            return None
        return compared if len(compared.identity or b"") <= LONGEST_AT_ONCE else None


def _kept(batch: pa.RecordBatch, places: Places, is_kept: Rows) -> tuple[pa.RecordBatch, Places]:
    return (batch, places) if is_kept.all() else (batch.filter(pa.array(is_kept)), places[is_kept])

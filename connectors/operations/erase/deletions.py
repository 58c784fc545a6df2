"""Works out what deletes each kept value: a record of the source that the connector's chain makes a tombstone of it.

Transforms and converters of the output change keys, and may drop tombstones. So each record is tried out in the
connector's own chain before any is sent: it has to come out without a value, under the key that is kept. Tried are a
tombstone, and a delete event of Debezium if the topic has change events, with these keys in turn:

1. the kept key, unless the output's converter has written it;
2. the key of the record that was read, if the source has it still: the brokers' cleaner knows it by these bytes;
3. the kept key, written by the source's converter.

A tombstone follows a delete event, as Debezium has it, by which the brokers' cleaner removes the key from the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import pyarrow as pa

from compactor.model.order import HEADER
from compactor.model.record import KEY_IDENTITY, SOURCE
from connectors.chain.chain import Chain
from connectors.chain.chain_pool import borrowed
from connectors.chain.spec import ChainSpec
from connectors.errors import UsageError
from connectors.operations.erase.delete_events import Pairs, SourceForms
from connectors.operations.erase.source_records import SourceRecords
from connectors.operations.erase.tombstones import Deletion, ToDelete
from connectors.placeholders import resolve
from connectors.terminal_text import one_line

_AT_ONCE: Final = 5_000
"""Records that are tried at once: as many as a batch of a reading task has."""
_MOST_READ: Final = 10_000
"""Records that are read from the source one by one, each by a request."""
_SHOWN: Final = 300
"""Characters of a reason that are shown: it may quote a record."""
_DROPPED: Final = "Its chain drops a tombstone."
_WHAT_NOW: Final = "Delete the keys at the source. Once keyfold get shows them with value null, run this command again."
_LET_THROUGH: Final = (
    "Let the chain make records without a value of deletes, of Debezium's by delete.tombstone.handling.mode=tombstone, "
    "then run this command again."
)
_Event = tuple[bytes | None, Pairs]
_TOMBSTONE: Final[_Event] = (None, ())


def deletions(
    connector: str, chain: ChainSpec, values: Sequence[ToDelete], order: str, source: SourceRecords
) -> tuple[Deletion, ...]:
    """Returns the record that deletes each of `values`, in their order.

    Without transforms and an `output.key.converter` that is a tombstone with the kept key, and nothing is read. Raises
    UsageError if a value is left that no record is known to delete; RegistryError, UnreachableError, NotAllowedError.
    """
    if not chain.steps and chain.output_key is None:
        return tuple(_deletion(each, each.key, _TOMBSTONE, order) for each in values)
    with borrowed(chain, resolve, keyed=True) as run, closing(SourceForms(chain, resolve)) as forms:
        search = _Search(run, values, order, forms, source)
        if chain.output_key is None:
            search.with_kept_keys()
        search.with_source_keys()
        if chain.output_key is not None:
            search.with_written_keys()
        return search.ended(connector)


class _Search:
    """Tries records for `values` until each has a deletion."""

    def __init__(
        self, chain: Chain, values: Sequence[ToDelete], order: str, forms: SourceForms, source: SourceRecords
    ) -> None:
        self._chain = chain
        self._values = values
        self._order = order
        self._forms = forms
        self._source = source
        # By place in `values`: what deletes it, and why the first record that was tried does not.
        self._deletions: dict[int, Deletion] = {}
        self._reasons: dict[int, str] = {}
        # A delete event of each topic that has change events; None before the first value needs any.
        self._events: dict[str, _Event] | None = None

    @property
    def left(self) -> list[int]:
        """The places of the values that have no deletion yet."""
        return [at for at in range(len(self._values)) if at not in self._deletions]

    def with_kept_keys(self) -> None:
        """Tries the kept keys."""
        self._try({at: each.key for at, each in enumerate(self._values)})

    def with_source_keys(self) -> None:
        """Tries the keys of the records that the values came from, as far as the source has these records."""
        places = {id(self._values[at]): at for at in self.left[:_MOST_READ]}
        read = self._source.of([self._values[at] for at in places.values()]) if places else ()
        records = {places[id(value)]: each for value, each in read}
        own = {at: self._forms.delete_event(self._values[at].topic, each) for at, each in records.items()}
        self._try({at: each.key for at, each in records.items()}, {at: each for at, each in own.items() if each})
        for at in set(self.left) - records.keys():
            self._reasons[at] = f"{self._reasons.get(at, '')} The record there was not read: it may be gone.".lstrip()

    def with_written_keys(self) -> None:
        """Tries the kept keys as the source's converter writes them, then as they are."""
        written = {at: self._forms.source_key(self._values[at].topic, self._values[at].key) for at in self.left}
        self._try(written)
        self.with_kept_keys()

    def ended(self, connector: str) -> tuple[Deletion, ...]:
        """Returns what deletes each value. Raises UsageError if nothing does."""
        if self.left:
            first, reason = self._values[self.left[0]], self._reasons[self.left[0]]
            raise UsageError(
                f"Connector {connector}: of {len(self.left)} values no record of the source is known that deletes them "
                f"through its transforms and converters. The first is at {first.topic}-{first.partition}, offset "
                f"{first.offset}: {reason} Nothing was done.",
                _LET_THROUGH if reason == _DROPPED else _WHAT_NOW,
            )
        return tuple(self._deletions[at] for at in range(len(self._values)))

    def _try(self, keys: Mapping[int, bytes | None], events: Mapping[int, _Event] | None = None) -> None:
        """Tries for each value that is left its key in `keys`: a tombstone, its event of `events`, one of its topic."""
        self._try_each(keys, lambda _: _TOMBSTONE)
        if events:
            self._try_each(keys, events.get)
        if any(keys.get(at) is not None for at in self.left):
            by_topic = self._events_of_topics()
            self._try_each(keys, lambda at: by_topic.get(self._values[at].topic))

    def _events_of_topics(self) -> Mapping[str, _Event]:
        if self._events is None:
            self._events = {}
            for topic, samples in self._source.newest(self._values[at].topic for at in self.left).items():
                events = (self._forms.delete_event(topic, each) for each in reversed(samples))
                event = next((each for each in events if each is not None), None)
                if event is not None:
                    self._events[topic] = event
        return self._events

    def _try_each(self, keys: Mapping[int, bytes | None], event_of: Callable[[int], _Event | None]) -> None:
        tries = {
            at: _deletion(self._values[at], key, event, self._order)
            for at in self.left
            if (key := keys.get(at)) is not None and (event := event_of(at)) is not None
        }
        reasons = dict(zip(tries, _outcomes(self._chain, list(tries.values())), strict=True))
        won = {at: each for at, each in tries.items() if reasons[at] is None}
        self._deletions |= self._followed({at: each for at, each in won.items() if each.payload is not None})
        self._deletions |= {at: each for at, each in won.items() if each.payload is None}
        for at, reason in reasons.items():
            if reason is not None:
                self._reasons.setdefault(at, reason)

    def _followed(self, events: Mapping[int, Deletion]) -> dict[int, Deletion]:
        """Returns delete events, each followed by a tombstone if the chain does not refuse it."""
        tombstones = [_deletion(each.value, each.key, _TOMBSTONE, self._order) for each in events.values()]
        harmless = [reason in (None, _DROPPED) for reason in _outcomes(self._chain, tombstones)]
        return {
            at: Deletion(each.value, each.key, each.payload, each.headers, is_followed=follows)
            for (at, each), follows in zip(events.items(), harmless, strict=True)
        }


def _deletion(value: ToDelete, key: bytes, event: _Event, order: str) -> Deletion:
    """Returns a record with the header that the order goes by, as the value has it: of equal ones the later wins."""
    payload, named = event
    name = order.removeprefix(HEADER) if order.startswith(HEADER) else None
    return Deletion(value, key, payload, (*named, *[each for each in value.headers if each[0] == name][-1:]))


def _outcomes(chain: Chain, tries: Sequence[Deletion]) -> list[str | None]:
    """Returns for each record why it does not delete its value; None: it does. Raises RegistryError."""
    outcomes: list[str | None] = []
    for start in range(0, len(tries), _AT_ONCE):
        some = tries[start : start + _AT_ONCE]
        rows = {row["offset"]: row for row in chain.apply(_batch(some)).to_pylist()}
        outcomes += [_outcome(each.value, rows.get(number)) for number, each in enumerate(some)]
    return outcomes


def _batch(tries: Iterable[Deletion]) -> pa.RecordBatch:
    """Returns the records as a reading task has them; their offsets are their places."""
    rows = [
        {
            "topic": each.value.topic,
            "partition": each.value.partition,
            "offset": number,
            "timestamp": each.value.timestamp_ms,
            "timestamp_type": 0,
            "key": each.key,
            "value": each.payload,
            "headers": [{"key": name, "value": value} for name, value in each.headers],
        }
        for number, each in enumerate(tries)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SOURCE)


def _outcome(value: ToDelete, row: Mapping[str, Any] | None) -> str | None:
    if row is None:
        return _DROPPED
    if row["rejected"] is not None:
        return f"Its chain refuses a tombstone: {one_line(row['rejected'])[:_SHOWN].removesuffix('.')}."
    if row["value"] is not None:
        return "A tombstone comes out of its chain with a value."
    compared = row["key"] if row.get(KEY_IDENTITY) is None else row[KEY_IDENTITY]
    is_same = compared == (value.key if value.identity is None else value.identity)
    return None if is_same else "A tombstone comes out of its chain under another key."

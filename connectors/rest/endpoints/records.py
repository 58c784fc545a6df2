"""Answers what a connector keeps of some keys: the worker as a state store, as Kafka Streams' interactive queries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Response
from msgspec import Struct

from compactor.digits import whole
from compactor.errors import LookUpError, MissingFileError, UnverifiedError
from compactor.index.blocks import FEW
from compactor.lookup.latest import unindexed_bytes
from compactor.lookup.records_at import FileOutlines
from compactor.model.log import PartitionLog
from compactor.model.state import CatalogState
from connectors.config.fields import INT_MAX
from connectors.errors import BusyError, UsageError
from connectors.operations import get as operation
from connectors.operations.get import KeyAnswer
from connectors.operations.offsets import kept_state
from connectors.rest import bodies, shapes
from connectors.rest.answers import Share, ShareDependency, check_length, json_answer
from connectors.rest.context import ContextDependency, RestContext, error_responses
from connectors.runtime.supervised_connector import Connector

PATH: Final = re.compile("/keyfold/connectors/(?P<connector>[^/]+)/records")
"""The path of `get_records`."""

router = APIRouter(prefix="/keyfold/connectors/{connector}", tags=["records"])

MOST_KEYS: Final = 100
"""How many keys a request has at most: each takes some 1 ms of processor time, ten times that without an index."""

MOST_TYPED: Final = 8
"""The same for values of keys: each is tried in up to 80 forms."""

MOST_BYTES: Final = 32 << 20
"""What the records of one answer may take."""

_COPIES: Final = 2
"""How often a record is in memory before it is JSON: as Arrow has it, and as Python does."""

_CONTROLS: Final = bytes(range(32)) + b'"\\'
"""Characters that take up to _ESCAPED bytes in a JSON text."""
_ESCAPED: Final = 6

UNINDEXED_BYTES: Final = 256 << 20
"""How much of a storage one request may read because no index has its keys: about a second of a core's time."""

UNVERIFIED_BYTES: Final = 1 << 30
"""How much of a storage one request may hold against checksums, as this worker has not yet: about 3 s of a core. What
it has read is remembered as verified, so that a client that asks again, as 503 tells it, has its answer in the end."""

MOST_STEPS: Final = 120_000
"""How many steps a look-up may take, about 3 s of a core: of many keys 20 for each run that is asked, and one for each
key in it (100 keys in 1,000 runs); of up to 8 keys 4 for each run (30,000 runs)."""

WIDE_STEPS: Final = 4_000
"""With more steps than these, some 0.1 s, a look-up waits for others that are as wide, and for no others."""

_A_RUN: Final = 20
"""Steps of a run for many keys, without those for each of them: 0.5 ms."""

_A_READY_RUN: Final = 4
"""Steps of a run for few keys: 0.1 ms to read what is kept ready of it, once; then next to nothing."""

OUTLINES: Final = FileOutlines(verifies=True, group_bytes=64 << 20, open_files=16)
"""Of the files that look-ups of this worker have read, and the last row groups: some 1 MiB with 10,000 records each.

A thread of look-ups keeps 16 files open, which have up to 2 GB of records; there are 4 such threads in a folder. It
ends, and closes them, if it has nothing to do for 10 s (`slow_calls.IDLE_S`)."""

Keys = Annotated[list[str] | None, Query(alias="key", description="A key; up to 100 of them.")]
Topic = Annotated[str | None, Query(description="Only this source topic.")]
Partition = Annotated[str | None, Query(description="Only this partition.")]
Hex = Annotated[str | None, Query(alias="hex", description="true: keys are in hexadecimal digits.")]
Typed = Annotated[
    str | None, Query(alias="typed", description="true: keys may be values of keys; their converter says how.")
]
Text = Annotated[str | None, Query(alias="text", description="true: bytes that are UTF-8 as text, otherwise base64.")]


class LookUp(Struct, frozen=True, kw_only=True):
    """What a request asks for; `partition` and `topic` None: all of them."""

    keys: tuple[bytes, ...]
    topic: str | None
    partition: int | None
    is_text: bool
    is_typed: bool


@router.get("/records", response_model=shapes.LookUpAnswer, responses=error_responses(400, 404, 503))
async def get_records(
    context: ContextDependency,
    share: ShareDependency,
    connector: str,
    keys: Keys = None,
    topic: Topic = None,
    partition: Partition = None,
    is_hex: Hex = None,
    is_text: Text = None,
    is_typed: Typed = None,
) -> Response:
    """Shows the latest record that is kept of each key, and below which source offsets the answer holds."""
    asked = LookUp(
        keys=_keys(keys or [], is_hex=bodies.flag(is_hex)),
        topic=topic,
        partition=_number(partition),
        is_text=bodies.flag(is_text),
        is_typed=bodies.flag(is_typed),
    )
    _check_typed(asked, is_hex=bodies.flag(is_hex))
    existing = context.herder.connector(connector)
    if asked.is_typed:
        return await context.slow.typed_look_ups.run(_look_up, context, share, existing, asked, MOST_STEPS)
    try:
        return await context.slow.look_ups.run(_look_up, context, share, existing, asked, WIDE_STEPS)
    except _WideError:
        return await context.slow.wide_look_ups.run(_look_up, context, share, existing, asked, MOST_STEPS)


class _WideError(Exception):
    """A look-up takes more steps than those that are made side by side."""


def _keys(texts: list[str], *, is_hex: bool) -> tuple[bytes, ...]:
    if not texts or len(texts) > MOST_KEYS:
        raise UsageError(f"The request has {len(texts)} keys.", f"Send 1 to {MOST_KEYS}, as key=…&key=….")
    return tuple(_bytes(text, is_hex=is_hex) for text in dict.fromkeys(texts))


def _check_typed(asked: LookUp, *, is_hex: bool) -> None:
    """Raises UsageError for values of keys that are too many, or that are said to be digits."""
    if asked.is_typed and (is_hex or len(asked.keys) > MOST_TYPED):
        raise UsageError(
            f"The request has {len(asked.keys)} keys{' in hexadecimal digits' if is_hex else ''} and typed=true.",
            f"Send 1 to {MOST_TYPED} as text with typed=true, for example key=%7B%22id%22%3A7%7D.",
        )


def _bytes(text: str, *, is_hex: bool) -> bytes:
    try:
        return bytes.fromhex(text) if is_hex else text.encode()
    except ValueError:
        raise UsageError(
            f'The key "{bodies.excerpt(text)}" is not in hexadecimal digits.', "For example hex=true&key=00ff."
        ) from None


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    number = whole(text, INT_MAX)
    if number is None:
        raise UsageError(f'The partition "{text:.100}" is no number.', "Send a whole number from 0 on, or none.")
    return number


def _look_up(context: RestContext, share: Share, connector: Connector, asked: LookUp, most_steps: int) -> Response:
    """Answers `asked`, and counts what it holds in `share`.

    Raises UsageError if the connector keeps no such partition, too much without an index or in too many runs;
    _WideError if it takes more than `most_steps`; StorageError, BusyError, RegistryError.
    """
    try:
        answer = _answer(context, share, connector, asked, most_steps)
    except UnverifiedError as error:
        raise BusyError(error.message, error.action) from None
    except LookUpError as error:
        raise UsageError(error.message, error.action) from None
    ends: dict[str, dict[str, int]] = {}
    for log in answer.logs:
        ends.setdefault(log.topic, {})[str(log.partition)] = log.end
    size = sum(_json_bytes(data, is_text=asked.is_text) for record in answer.records for data in _bytes_of(record))
    check_length(size)
    share.hold(_COPIES * size)  # the records, and the buffer that they are written to
    records = [_shown(record, is_text=asked.is_text) for record in answer.records]
    return json_answer(msgspec.json.encode({"records": records, "ends": ends}))


def _answer(context: RestContext, share: Share, connector: Connector, asked: LookUp, most_steps: int) -> KeyAnswer:
    storage, config = context.storage_of(connector.name), connector.spec.config
    outlines = OUTLINES.verifying_at_most(UNVERIFIED_BYTES)

    def ask(keys: Sequence[bytes]) -> KeyAnswer:
        return operation.get(
            storage,
            config,
            lambda: _state(context, connector),
            keys,
            lambda state: _logs(connector.name, asked, state, len(keys), most_steps),
            outlines,
            MOST_BYTES,
            lambda size: share.hold(_COPIES * size),
        )

    answer = ask(asked.keys)
    if not asked.is_typed:
        return answer
    # Converters, which most look-ups do not need.
    from connectors.operations.typed_keys import KeyForms, kept_forms, with_forms
    from connectors.placeholders import resolve

    def forms(answer: KeyAnswer) -> KeyForms:
        written = config.chain_spec(context.worker.given).written_key
        try:
            return kept_forms(storage, written, answer.logs, answer.absent, resolve, outlines)
        except MissingFileError:
            raise BusyError("What the look-up reads was replaced by a clean meanwhile.", "Ask again.") from None

    return with_forms(answer, asked.keys, forms, ask)


def _logs(connector: str, asked: LookUp, state: CatalogState, keys: int, most_steps: int) -> tuple[PartitionLog, ...]:
    """Returns the logs of `state` that are asked for so many keys. Raises UsageError, _WideError."""
    if not state.logs and asked.topic is None and asked.partition is None:
        return ()
    logs = operation.logs_of(state, connector, asked.topic, asked.partition)
    if (unindexed := unindexed_bytes(logs)) > UNINDEXED_BYTES:
        raise UsageError(
            f"Connector {connector} keeps {unindexed:,} bytes of records there without an index of keys; over REST at "
            f"most {UNINDEXED_BYTES:,} are read for an answer.",
            "Set state.index=always: the next clean indexes what is kept. Or name a partition, or use keyfold get.",
        )
    _check_steps(connector, keys, sum(len(log.kept) for log in logs), most_steps)
    return logs


def _check_steps(connector: str, keys: int, runs: int, most_steps: int) -> None:
    """Raises _WideError or UsageError for a look-up that takes too many steps."""
    steps = runs * (_A_READY_RUN if keys <= FEW else _A_RUN + keys)
    if steps > MOST_STEPS:
        fewer = max(MOST_STEPS // runs - _A_RUN, FEW if runs * _A_READY_RUN <= MOST_STEPS else 0)
        raise UsageError(
            f"Connector {connector} keeps {runs:,} runs there, too many for {keys} keys at once.",
            f"Ask for {fewer} at a time, or name a partition." if fewer > 0 else "Name a topic or partition.",
        )
    if steps > most_steps:
        raise _WideError


def _state(context: RestContext, connector: Connector) -> CatalogState:
    """Returns what this process knows of the catalog; of a connector that does not run it is read."""
    known = connector.catalog_state
    return kept_state(context.worker, connector.name) if known is None else known


def _bytes_of(record: operation.KeyRecord) -> Iterator[bytes]:
    yield record.key
    yield record.value or b""
    for name, value in record.headers:
        yield name.encode()
        yield value or b""


def _json_bytes(data: bytes, *, is_text: bool) -> int:
    """Returns how many bytes `data` may take in an answer: it is known before they are made."""
    if not is_text:
        return -(-len(data) // 3) * 4
    return max(len(data), len(data) // 3 * 4) + (_ESCAPED - 1) * (len(data) - len(data.translate(None, _CONTROLS)))


def _shown(record: operation.KeyRecord, *, is_text: bool) -> dict[str, Any]:
    """Returns a shapes.KeptRecordEntity, of which bytes are written as base64."""
    fields = record.shown(text=is_text)
    del fields["end"]
    return fields

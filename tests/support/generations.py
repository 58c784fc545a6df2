"""Checks the promises within the newest generation of each partition, and that the output became equal to it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from datetime import UTC, datetime

from compactor.model.log import generation_of as generation_of_log
from compactor.model.state import CatalogState
from tests.support.deployment import Deployment
from tests.support.kafka import Read, consume_all
from tests.support.promises import PLAIN, Rules, broken_promises

GENERATION, SYNTHETIC = "keyfold.generation", "keyfold.synthetic"


def generation_of(record: Read) -> int:
    """Returns the generation that an output record names, 1 where it names none."""
    return int(dict(record.headers).get(GENERATION) or b"1")


def time_text(time_ms: int) -> str:
    """Returns a time as `keyfold resync --since` takes it."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


def is_synthetic(record: Read) -> bool:
    """Returns whether no source record is behind an output record."""
    return SYNTHETIC in dict(record.headers)


def numbers(state: CatalogState) -> list[int]:
    """Returns the generation of each log, by partition."""
    return [generation_of_log(log) for log in sorted(state.logs, key=lambda log: log.tp)]


def broken(deployment: Deployment, skipped: Mapping[int, range] | None = None) -> list[str]:
    """Returns the violations within the newest generations of a topic, which begin where the catalog says.

    `skipped`: source offsets of each partition that were given up.
    """
    state, given_up = deployment.state(), skipped or {}
    starts = {log.partition: log.generation.start for log in state.logs if log.generation}
    source = [
        record
        for record in consume_all(deployment.bootstrap, deployment.topic)
        if record.offset not in given_up.get(record.partition, ())
    ]
    output = consume_all(deployment.bootstrap, deployment.output)
    return broken_generations(source, output, deployment.published(), starts)


def live(records: Iterable[Read]) -> dict[tuple[int, bytes | None], bytes]:
    """Returns the value of each key of each partition whose last record has one."""
    last = {(record.partition, record.key): record.value for record in records}
    return {key: value for key, value in last.items() if value is not None}


def winners(records: Iterable[Read], rules: Rules) -> dict[tuple[int, bytes | None], bytes]:
    """Returns the value of each key of each partition of which the record that wins by `rules` has one."""
    last = {(record.partition, rules.same(record.key)): record for record in sorted(records, key=rules.rank)}
    return {(record.partition, record.key): record.value for record in last.values() if record.value is not None}


def newest_generations(output: Iterable[Read]) -> dict[int, int]:
    """Returns the newest generation of each partition."""
    found: dict[int, int] = {}
    for record in output:
        found[record.partition] = max(found.get(record.partition, 1), generation_of(record))
    return found


def broken_generations(
    source: Iterable[Read],
    output: Iterable[Read],
    ends: Mapping[int, int],
    starts: Mapping[int, int],
    rules: Rules = PLAIN,
) -> list[str]:
    """Returns every violation within the newest generations, one line each; these begin at `starts` of the source.

    Also where generations fall, where a tombstone without a source record says more or less than it may, and where the
    output as a whole is not what the source is from `starts` on.
    """
    kept = [record for record in source if record.offset >= starts.get(record.partition, 0)]
    found = list(output)
    newest = newest_generations(found)
    own = [record for record in found if generation_of(record) == newest[record.partition]]
    real = [record for record in own if not is_synthetic(record)]
    said = {b"reset"} if rules.same is PLAIN.same else {b"reset", b"identity"}
    faults = [*broken_promises(kept, real, ends, rules), *_falling(found), *_wrong_tombstones(own, said)]
    below = [record for record in kept if record.offset < ends.get(record.partition, 0)]
    if (seen := live(found)) != (expected := winners(below, rules)):
        faults.append(f"(5) live keys differ: {sorted(seen.items() ^ expected.items(), key=repr)[:5]}")
    return faults


def _falling(output: Iterable[Read]) -> list[str]:
    newest: dict[int, int] = {}
    faults = []
    for record in output:
        if generation_of(record) < newest.get(record.partition, 1):
            faults.append(f"partition {record.partition}: a generation comes after a later one at {record.offset}")
        newest[record.partition] = max(newest.get(record.partition, 1), generation_of(record))
    return faults


def _wrong_tombstones(own: Iterable[Read], said: Container[bytes | None]) -> list[str]:
    faults = []
    for record in own:
        headers = dict(record.headers)
        if SYNTHETIC not in headers:
            continue
        if record.value is not None or headers[SYNTHETIC] not in said or "keyfold.source.offset" in headers:
            faults.append(f"partition {record.partition}: {record} is no tombstone that may be there")
    return faults

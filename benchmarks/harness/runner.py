"""Takes the measurements that are missing in the results, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.harness import results as files
from benchmarks.harness.broker import broker
from benchmarks.harness.call import call, killed
from benchmarks.harness.datasets import DataSet, filled_topic, first_records, named, produce
from benchmarks.harness.results import Measured, Results, Run
from benchmarks.harness.row import Comparison, Measurement, MissingError, Peer, run_peer, starting
from connectors.dev.revision import UNKNOWN


class Ground(NamedTuple):
    """What comparisons run on."""

    broker: Callable[[], AbstractContextManager[str]] = broker
    call: Callable[..., Any] = call
    filled_topic: Callable[[str, DataSet], str] = filled_topic
    produce: Callable[[str, str, DataSet], object] = produce


GROUND: Final = Ground()


class Runner:
    """Continues `results` until each row has `rounds` rounds, and saves them to `file` after each measurement."""

    def __init__(self, results: Results, rounds: int, file: Path, ground: Ground = GROUND) -> None:
        self._ground = ground
        self.results = results
        self.failed = False
        self._rounds = rounds
        self._file = file

    def compare(self, row: Comparison) -> None:
        """Runs both programs in turn, on one broker and topic: their starts while that has a record in each partition.

        Then the rest of the data set is added, and both are run on all of it.
        """
        data, first = named(row.data), first_records(named(row.data))
        starts, whole = ([*self._missing(row, starts=which)] for which in (True, False))
        if not starts and not whole:
            return
        with self._saving(row.id), self._ground.broker() as bootstrap:
            topic = self._ground.filled_topic(bootstrap, first)
            for number, peer in starts:
                self._run(row, peer, number, first.records, (bootstrap, topic), start=True)
            if not whole:
                return
            self._ground.call(f"fill {data.name}", self._ground.produce, bootstrap, topic, data)
            records = first.records + data.records
            print(f"{row.id}: {records:,} records are there", flush=True)
            for number, peer in whole:
                self._run(row, peer, number, records, (bootstrap, topic), start=False)

    def measure(self, row: Measurement) -> None:
        """Takes the values once a round, each round on a broker of its own."""
        done = sum(one.figure == row.source for one in self.results.measured)
        for number in range(done + 1, self._rounds + 1):
            with self._saving(row.source), self._ground.broker() if row.broker else nullcontext("") as bootstrap:
                try:
                    values = self._ground.call(row.source, row.measure, bootstrap)
                except MissingError as error:
                    self.results.missing[row.source] = str(error)
                    print(f"  {row.source} is left out: {error}", flush=True)
                    return
                self.results.measured.append(Measured(figure=row.source, round=number, values=values))
                shown = ", ".join(f"{name} {value:.2f}" for name, value in values.items())
                print(f"{row.source}: {shown}", flush=True)

    def _missing(self, row: Comparison, *, starts: bool) -> Iterator[tuple[int, Peer]]:
        """Yields each round with each peer that was not measured in it yet, unless it cannot run on this machine."""
        for number in range(1, min(self._rounds, row.rounds or self._rounds) + 1):
            for peer in (row.ours, row.other):
                done = {one.round for one in self.results.of(row.id, peer.name, starts=starts)}
                if number not in done and peer.name not in self.results.missing:
                    yield number, peer

    def _run(
        self, row: Comparison, peer: Peer, number: int, records: int, target: tuple[str, str], *, start: bool
    ) -> None:
        """Measures `peer` in round `number` on `target`, the bootstrap servers and a topic with so many records."""
        if peer.name in self.results.missing:
            return
        with self._saving(f"{row.id}: {peer.name}"):
            try:
                runs = starting(peer) if start else peer
                what = f"{row.id}: {peer.name}, {records:,} records"
                used = self._ground.call(what, run_peer, runs, *target)
            except MissingError as error:
                self.results.missing[peer.name] = str(error)
                print(f"  {peer.name} is left out: {error}", flush=True)
                return
            self.results.runs.append(
                Run(row=row.id, program=peer.name, round=number, records=records, used=used, start=start)
            )
            print(f"  round {number}: {peer.name}, {records:,} records: {used.seconds:.1f} s", flush=True)

    @contextmanager
    def _saving(self, what: str) -> Iterator[None]:
        """Notes a failure and goes on with the next measurement: hours of others must not be lost by it."""
        if self.results.code not in (UNKNOWN, now := files.code()):
            raise SystemExit(f"The code was {self.results.code} when this began, and is {now}: {what} is not measured.")
        try:
            yield
        except RuntimeError as error:
            self.failed = True
            self.results.notes.append(f"{what} failed: {error}")
            print(f"  {self.results.notes[-1]}", flush=True)
        finally:
            self.results.notes.extend(killed)
            killed.clear()
            files.save(self._file, self.results)

"""Takes the measurements that are missing in the results, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from benchmarks.harness import results as files
from benchmarks.harness.broker import broker
from benchmarks.harness.call import call, killed
from benchmarks.harness.datasets import ONE, filled_topic, named
from benchmarks.harness.results import Measured, Results, Run
from benchmarks.harness.row import Comparison, Measurement, MissingError, Peer, run_peer


class Runner:
    """Continues `results` until each row has `rounds` rounds, and saves them to `file` after each measurement."""

    def __init__(self, results: Results, rounds: int, file: Path) -> None:
        self.results = results
        self.failed = False
        self._rounds = rounds
        self._file = file

    def compare(self, row: Comparison) -> None:
        """Runs both programs in turn on one broker, in each round on a topic with one record first, for the start."""
        data = named(row.data)
        peers = (row.ours, row.other)
        if not any(self._missing_rounds(row, peer, starts=starts) for peer in peers for starts in (True, False)):
            return
        with self._saving(row.id), broker() as bootstrap:
            topics = {records.records: filled_topic(bootstrap, records) for records in (ONE, data)}
            print(f"{row.id}: {data.records:,} records are there", flush=True)
            for number in range(1, self._rounds + 1):
                for peer in peers:
                    for records, topic in topics.items():
                        if number in self._missing_rounds(row, peer, starts=records == ONE.records):
                            self._run(row, peer, number, records, (bootstrap, topic))

    def measure(self, row: Measurement) -> None:
        """Takes the values once a round, each round on a broker of its own."""
        done = sum(one.figure == row.source for one in self.results.measured)
        for number in range(done + 1, self._rounds + 1):
            with self._saving(row.source), broker() if row.broker else nullcontext("") as bootstrap:
                values = call(row.source, row.measure, bootstrap)
                self.results.measured.append(Measured(figure=row.source, round=number, values=values))
                shown = ", ".join(f"{name} {value:.2f}" for name, value in values.items())
                print(f"{row.source}: {shown}", flush=True)

    def _missing_rounds(self, row: Comparison, peer: Peer, *, starts: bool) -> set[int]:
        """Returns the rounds in which `peer` was not measured yet; none if it cannot run on this machine."""
        if peer.name in self.results.missing:
            return set()
        done = {one.round for one in self.results.of(row.id, peer.name, starts=starts)}
        return set(range(1, self._rounds + 1)) - done

    def _run(self, row: Comparison, peer: Peer, number: int, records: int, target: tuple[str, str]) -> None:
        """Measures `peer` in round `number` on `target`, the bootstrap servers and a topic with so many records."""
        with self._saving(f"{row.id}: {peer.name}"):
            try:
                used = call(f"{row.id}: {peer.name}, {records:,} records", run_peer, peer, *target)
            except MissingError as error:
                self.results.missing[peer.name] = str(error)
                print(f"  {peer.name} is left out: {error}", flush=True)
                return
            self.results.runs.append(Run(row=row.id, program=peer.name, round=number, records=records, used=used))
            print(f"  round {number}: {peer.name}, {records:,} records: {used.seconds:.1f} s", flush=True)

    @contextmanager
    def _saving(self, what: str) -> Iterator[None]:
        """Notes a failure and goes on with the next measurement: hours of others must not be lost by it."""
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

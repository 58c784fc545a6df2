"""Measures what is still missing of a row or a figure; each measurement in a process of its own."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from benchmarks.harness import alone
from benchmarks.harness import results as files
from benchmarks.harness.broker import broker
from benchmarks.harness.datasets import ONE, filled, named
from benchmarks.harness.figure import Figure
from benchmarks.harness.results import Measured, Results, Run
from benchmarks.peers.peers import MissingError, Peer, run
from benchmarks.rows.rows import Row


def ended_by_sigterm() -> None:
    """Has this process end by SIGTERM as it does by Ctrl-C: what it started would otherwise stay."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


class Measuring:
    """`results`, gone on with until everything asked for has `rounds`, and kept in `file` after each measurement."""

    def __init__(self, results: Results, rounds: int, file: Path) -> None:
        self.results = results
        self.failed = False
        self._rounds = rounds
        self._file = file

    def row(self, row: Row) -> None:
        """In each round one program after the other, all on one broker; each on one record first, for its start."""
        data = named(row.data)
        peers = (row.ours, row.other)
        if not any(self._open(row, peer, starts) for peer in peers for starts in (True, False)):
            return
        with self._noting(row.id), broker() as bootstrap:
            topics = {records.records: filled(bootstrap, records) for records in (ONE, data)}
            print(f"{row.id}: {data.records:,} records are there", flush=True)
            for number in range(1, self._rounds + 1):
                for peer in peers:
                    for records, topic in topics.items():
                        if number in self._open(row, peer, records == ONE.records):
                            self._run(row, peer, number, records, (bootstrap, topic))

    def figure(self, figure: Figure) -> None:
        """Each round on a broker of its own."""
        done = sum(one.figure == figure.source for one in self.results.measured)
        for number in range(done + 1, self._rounds + 1):
            with self._noting(figure.source), broker() if figure.broker else nullcontext("") as bootstrap:
                values = alone.call(figure.source, figure.measure, bootstrap)
                self.results.measured.append(Measured(figure=figure.source, round=number, values=values))
                said = ", ".join(f"{name} {value:.2f}" for name, value in values.items())
                print(f"{figure.source}: {said}", flush=True)

    def _open(self, row: Row, peer: Peer, starts: bool) -> set[int]:  # noqa: FBT001  # one of two, named by its use
        """The rounds in which `peer` was not measured yet; none where it cannot run here."""
        if peer.name in self.results.missing:
            return set()
        done = {one.round for one in self.results.of(row.id, peer.name, starts=starts)}
        return set(range(1, self._rounds + 1)) - done

    def _run(self, row: Row, peer: Peer, number: int, records: int, place: tuple[str, str]) -> None:
        with self._noting(f"{row.id}: {peer.name}"):
            try:
                used = alone.call(f"{row.id}: {peer.name}, {records:,} records", run, peer, *place)
            except MissingError as error:
                self.results.missing[peer.name] = str(error)
                print(f"  {peer.name} is left out: {error}", flush=True)
                return
            self.results.runs.append(Run(row=row.id, program=peer.name, round=number, records=records, used=used))
            print(f"  round {number}: {peer.name}, {records:,} records: {used.seconds:.1f} s", flush=True)

    @contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        """What fails is noted, and the next thing measured: after hours all the rest must not be lost by it."""
        try:
            yield
        except RuntimeError as error:
            self.failed = True
            self.results.notes.append(f"{what} failed: {error}")
            print(f"  {self.results.notes[-1]}", flush=True)
        finally:
            self.results.notes.extend(alone.deaths)
            alone.deaths.clear()
            files.save(self._file, self.results)

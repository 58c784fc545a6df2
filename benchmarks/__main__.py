"""`python -m benchmarks`: every program in turn, three rounds, and a table of ratios."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from uuid import uuid4

from benchmarks import results as files
from benchmarks.datasets import DATA_SETS, ONE, fill
from benchmarks.figures import FIGURES, Figure
from benchmarks.peers import MissingError, Peer
from benchmarks.process import Used
from benchmarks.results import Measured, Results, Run
from benchmarks.rows import ROWS, Row
from benchmarks.table import figures, table
from connectors.kafka.embedded import EmbeddedKafka


def main() -> None:
    """Measures what is asked for and not there yet, and prints the table."""
    asked = _asked()
    file = asked.into / "results.json"
    results = files.load(file)
    names = asked.rows.split(",") if asked.rows else [*ROWS, *FIGURES]
    rows = [ROWS[name] for name in names if name in ROWS]
    wanted = [FIGURES[name] for name in names if name not in ROWS]
    for row in rows:
        _measure(row, asked.scale, asked.rounds, results, file)
    for figure in wanted:
        _figure(figure, asked.rounds, results, file)
    text = f"{table(rows, results)}\n\n{figures(wanted, results)}"
    (asked.into / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)


def _asked() -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    options.add_argument("--rows", help=f"some of {', '.join([*ROWS, *FIGURES])}, with commas; all when left out")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--scale", type=float, default=1.0, help="times as many records as the data sets say")
    options.add_argument("--into", type=Path, default=Path("build/bench"), help="results.json there is gone on with")
    return options.parse_args()


def _measure(row: Row, scale: float, rounds: int, results: Results, file: Path) -> None:
    """What is still missing of a row: in each round one program after the other, on a broker of their own."""
    data = DATA_SETS[row.data].scaled(scale)
    if all(len(results.of(row.id, one.name)) >= rounds for one in (row.ours, row.other)):
        return
    with tempfile.TemporaryDirectory() as place, EmbeddedKafka(Path(place, "kafka"), heap="2g") as broker:
        topic, single = f"{data.name}-{uuid4().hex[:6]}", f"one-{uuid4().hex[:6]}"
        print(f"{row.id}: {data.records:,} records filled in {fill(broker.bootstrap, topic, data):.0f} s", flush=True)
        fill(broker.bootstrap, single, ONE)
        for number in range(1, rounds + 1):
            for peer in (row.ours, row.other):
                for name, records in ((single, 1), (topic, data.records)):
                    done = [one.round for one in results.of(row.id, peer.name, starts=records == 1)]
                    if number in done or peer.name in results.missing:
                        continue
                    used = _run(peer, broker.bootstrap, name, results)
                    if used is not None:
                        results.runs.append(
                            Run(row=row.id, program=peer.name, round=number, records=records, used=used)
                        )
                        print(f"  round {number}: {peer.name}, {records:,} records: {used.seconds:.1f} s", flush=True)
                    files.save(file, results)


def _figure(figure: Figure, rounds: int, results: Results, file: Path) -> None:
    """The rounds of a figure that are still missing, each on a broker of its own."""
    done = sum(one.figure == figure.id for one in results.measured)
    for number in range(done + 1, rounds + 1):
        with tempfile.TemporaryDirectory() as place, EmbeddedKafka(Path(place, "kafka"), heap="2g") as broker:
            values = figure.measure(broker.bootstrap)
        results.measured.append(Measured(figure=figure.id, round=number, values=values))
        print(f"{figure.id}: {', '.join(f'{name} {value:.2f}' for name, value in values.items())}", flush=True)
        files.save(file, results)


def _run(peer: Peer, bootstrap: str, topic: str, results: Results) -> Used | None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return peer.run(bootstrap, topic, Path(folder))
        except MissingError as error:
            results.missing[peer.name] = str(error)
            print(f"  {peer.name} is left out: {error}", flush=True)
            return None


if __name__ == "__main__":
    main()

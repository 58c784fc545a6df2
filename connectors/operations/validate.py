"""Checks worker and connector files, with what is around them: `keyfold validate`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from compactor.errors import KeyfoldError
from compactor.model.order import FIELD
from connectors.config.clients.merged import client_config
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import Fault, FaultyConfigError
from connectors.config.files import OtherFile, clashes, load_connector, load_valid_part, load_worker, other_file
from connectors.config.folder_checks import snapshot_faults, storage_faults
from connectors.config.secrets import logged_text
from connectors.config.selection import missing, select
from connectors.config.worker import WorkerConfig
from connectors.errors import ConfigError, UnreachableError
from connectors.jvm.java import find_java
from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.probe import probe_all
from connectors.operations.advice import advice, listed
from connectors.operations.topic_samples import Sample, sampled
from connectors.placeholders import resolve
from connectors.sinks import output_topic

_PROBE_S: Final = 10.0


class Verdict(Struct, frozen=True):
    """What is said of one file: `errors` are sentences that begin with their key; `config` shows no secret.

    `warnings` are sentences as errors are, of what is right and probably not meant.
    """

    file: str
    name: str | None
    valid: bool
    errors: list[str]
    warnings: list[str]
    config: dict[str, str | None] | None = None


class BrokerQuestions:
    """What brokers are asked; `unanswered` is the error of those that did not answer, after which none is asked."""

    def __init__(self) -> None:
        self.unanswered: UnreachableError | None = None

    def faults(self, config: ConnectorConfig, worker: WorkerConfig) -> tuple[Fault, ...]:
        """Returns what the brokers have against a connector; its settings may be a part of its file's."""
        if self.unanswered is not None:
            return ()
        try:
            probe_all(config.name, ClientSettings.of(worker, config), _PROBE_S)
            return broker_faults(config, Admin(client_config("admin", worker, config, {})))
        except UnreachableError as error:
            self.unanswered = error
            return ()

    def samples(self, config: ConnectorConfig, worker: WorkerConfig) -> dict[str, list[Sample]]:
        """Returns the newest records of the connector's first topics; none if brokers do not answer or allow it."""
        if self.unanswered is not None:
            return {}
        try:
            with closing(Admin(client_config("admin", worker, config, {}))) as admin:
                topics = select(config, admin.list_topics())
                return sampled(ClientSettings.of(worker, config), admin, topics)
        except KeyfoldError:  # what is wrong with the brokers was told; this is advice
            return {}

    def warnings(self, config: ConnectorConfig, worker: WorkerConfig) -> Iterator[Fault]:
        """Yields what does not fit between a connector and the partitions of its topics; none as `samples`."""
        if self.unanswered is None and config.debezium_truncate == "apply":
            with suppress(KeyfoldError), closing(Admin(client_config("admin", worker, config, {}))) as admin:
                yield from truncate_faults(config, admin)


def validate(
    paths: Sequence[Path], worker: Path | None, broker: BrokerQuestions | None, *, alone: bool
) -> list[Verdict]:
    """Returns a verdict for each connector file, after one for the worker file if that, or its machine, is wrong.

    Without a `worker` file the environment has the worker's settings, unless connectors are checked `alone`. With
    `broker` brokers and object stores are asked.
    """
    try:
        config = None if alone else load_worker(worker)
    except FaultyConfigError as error:
        return [_faulty(error), *(_verdict([OtherFile(path, None, None)], 0, None, None) for path in paths)]
    here = _at_this_machine(config, asks=broker is not None) if config else ()
    others = [other_file(path) for path in paths]
    first = [_faulty(FaultyConfigError(str(worker or "environment"), here))] if here else []
    return [*first, *(_verdict(others, at, config, broker) for at in range(len(paths)))]


def _verdict(
    files: Sequence[OtherFile], at: int, worker: WorkerConfig | None, broker: BrokerQuestions | None
) -> Verdict:
    path = files[at].path
    try:
        if worker is None:
            config, faulty = load_connector(path).config, None
        else:
            config, faulty = load_valid_part(path, worker)
    except FaultyConfigError as error:
        return _faulty(error)
    faults = [*(faulty.faults if faulty else ()), *clashes(config, files[:at])]
    if worker is not None:
        faults += snapshot_faults(worker, config, asks=broker is not None)
        faults += broker.faults(config, worker) if broker else ()
    warnings = _warnings(config, [*files[:at], *files[at + 1 :]], worker, broker)
    if faults:
        return _faulty(FaultyConfigError(str(path), faults), warnings)
    return Verdict(str(path), config.name, valid=True, errors=[], warnings=warnings, config=config.effective())


def _warnings(
    config: ConnectorConfig, others: Iterable[OtherFile], worker: WorkerConfig | None, broker: BrokerQuestions | None
) -> list[str]:
    samples = broker.samples(config, worker) if broker and worker else {}
    spec = config.chain_spec(worker.given if worker else None)
    told = [*advice(config, spec, resolve, others, samples)]
    told += broker.warnings(config, worker) if broker and worker else ()
    return [logged_text(str(fault)) for fault in told]


def _at_this_machine(worker: WorkerConfig, *, asks: bool) -> tuple[Fault, ...]:
    """Lists what a worker would not find here: Java, a place for its storage. An object store is asked if `asks`."""
    faults = storage_faults(worker, asks=asks)
    try:
        find_java()
    except ConfigError as error:
        return (*faults, Fault("", str(error)))
    return faults


def _faulty(error: FaultyConfigError, warnings: Sequence[str] = ()) -> Verdict:
    errors = [logged_text(str(fault)) for fault in error.faults]
    return Verdict(error.file, None, valid=False, errors=errors, warnings=[*warnings])


def broker_faults(config: ConnectorConfig, brokers: Admin) -> tuple[Fault, ...]:
    """Lists what does not fit between a connector and the brokers; changes nothing there.

    A named source topic must exist, an output topic that exists must keep what keyfold sends it, and there must be
    brokers for the replicas of topics that keyfold will create. Raises UnreachableError when none answers.
    """
    existing = frozenset(brokers.list_topics())
    absent = [
        Fault("topics", f'"{name}" does not exist; create it, or correct the name.')
        for name in missing(config, existing)
    ]
    outputs = [output for topic in select(config, existing) if (output := config.output_topic(topic)) is not None]
    there = [output for output in outputs if output in existing]
    unfit = (
        Fault("output.topic", f'"{output}" exists: {text}.')
        for output in there
        for text in output_topic.faults(config, brokers.topic_config(output))
    )
    return (*absent, *unfit, *_too_few(config, existing, outputs, brokers))


def truncate_faults(config: ConnectorConfig, brokers: Admin) -> Iterator[Fault]:
    """Yields a fault if truncates are to be applied, and nothing says what of other partitions is before them."""
    if config.debezium_truncate != "apply" or config.order.startswith(FIELD):
        return
    infos = brokers.describe(select(config, brokers.list_topics())).values()
    if several := [info.name for info in infos if info.partitions > 1]:
        yield Fault(
            "debezium.truncate",
            f"is apply, and {listed(several)}: a truncate of several partitions is refused. Set compaction.order to a "
            "field of the event, such as field:source.lsn, or give these topics one partition each.",
        )


def _too_few(
    config: ConnectorConfig, existing: Collection[str], outputs: Iterable[str], brokers: Admin
) -> Iterator[Fault]:
    """Yields a fault for each topic to be created with more replicas than brokers; -1 is the brokers' default."""
    new: dict[str, tuple[int, str]] = {}
    for output in outputs:
        if output not in existing:
            new.setdefault("output.topic", (config.output_topic_replication_factor, output))
    if config.dead_letter_topic and config.dead_letter_topic not in existing:
        new["errors.deadletterqueue.topic"] = (config.dead_letter_replication_factor, config.dead_letter_topic)
    count = brokers.brokers() if new else 0
    there = "there is 1 broker" if count == 1 else f"there are {count} brokers"
    for key, (replicas, topic) in new.items():
        if replicas > count:
            text = f'is {replicas}, but {there}; lower it, or create "{topic}" yourself.'
            yield Fault(f"{key}.replication.factor", text)

"""Reads worker and connector files, each by itself and together with the others; every fault names its file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from compactor.storage.locations import azure_account
from connectors.chain.fit import fit_faults
from connectors.config import errors
from connectors.config.clients.client_check import client_faults
from connectors.config.clients.override_policy import override_faults
from connectors.config.connector import ConnectorConfig
from connectors.config.definitions import definitions
from connectors.config.errors import Fault, FaultyConfigError, raise_all, shown
from connectors.config.flat_file import check_size
from connectors.config.json_file import read_object
from connectors.config.relative_paths import anchored, folder_of
from connectors.config.rest_rules import rest_faults
from connectors.config.secrets import is_secret
from connectors.config.snapshot_places import (
    place_clash,
    place_of,
    rest_fault_of_account,
    rest_faults_of_place,
    table_clash,
)
from connectors.config.topic_clashes import loop_fault, pair_faults
from connectors.config.worker import WorkerConfig
from connectors.credentials import logins
from connectors.known_values import remember_setting
from connectors.match_time import CHECK_S, COMPARE_S, OTHER_S, matches_within
from connectors.placeholders import MOST_OVER_REST, UNLIMITED, Limits, placeholders_in, resolve

STORAGE: Final = "storage.location"
_LATER: Final = "an output of two connectors, or a loop, is found when a topic is taken up"
_log = structlog.get_logger()


class ConnectorFile(msgspec.Struct, frozen=True):
    """A connector and the file that it was read from."""

    path: Path
    config: ConnectorConfig


class OtherFile(msgspec.Struct, frozen=True):
    """A connector file that another one may clash with: its connector's name, and the connector if it is valid."""

    path: Path
    name: str | None
    config: ConnectorConfig | None


def load_worker(path: Path | None) -> WorkerConfig:
    """Reads the worker's settings: the file's, under those of the environment; without a file only these.

    Relative paths of the file count from its folder, those of the environment from the current folder.
    Raises ConfigError with all faults.
    """
    where = str(path) if path else "environment"
    raw = _worker_settings(path) if path else {}
    try:
        config = WorkerConfig(**raw)
    except FaultyConfigError as error:
        raise error.of(where) from None
    for name, text in config.given.items():
        remember_setting(text, is_secret=is_secret(name), over_rest=False)
    for login in logins(config.given):
        remember_setting(login, is_secret=True, over_rest=False)
    faults = (*client_faults(config, None), *rest_faults(config))
    if faults:
        raise FaultyConfigError(where, faults)
    return config


def _worker_settings(path: Path) -> dict[str, Any]:
    keys = definitions(WorkerConfig)
    here = {STORAGE: keys[STORAGE].default}  # the default too counts from the file's folder
    return anchored({**here, **read_object(path)}, keys, folder_of(path))


def load_connector(path: Path, worker: WorkerConfig | None = None) -> ConnectorFile:
    """Reads the connector of a file; with `worker` what the two mean together is checked too.

    Relative paths count from the file's folder. Raises ConfigError with all faults.
    """
    raw = read_object(path)
    limits = worker.limits(over_rest=False) if worker else UNLIMITED
    try:
        settings = anchored(unwrapped(raw), definitions(ConnectorConfig), folder_of(path), limits)
        config = ConnectorConfig.model_validate(settings, context=limits)
    except FaultyConfigError as error:
        raise error.of(str(path)) from None
    faults = _together(config, worker)
    if faults:
        raise FaultyConfigError(str(path), faults)
    return ConnectorFile(path, config)


def load_valid_part(path: Path, worker: WorkerConfig) -> tuple[ConnectorConfig, FaultyConfigError | None]:
    """Reads the connector of a file without the settings that are at fault, and says what is wrong with these.

    A running connector goes on with what was read before, so its file may be at fault. Raises ConfigError with all
    faults if the rest is no connector.
    """
    try:
        return load_connector(path, worker).config, None
    except FaultyConfigError as error:
        faults: FaultyConfigError = error
    config = _without(path, worker, {fault.key for fault in faults.faults})
    if config is None:
        raise faults
    return config, faults


def _without(path: Path, worker: WorkerConfig, keys: Collection[str]) -> ConnectorConfig | None:
    limits = worker.limits(over_rest=False)
    try:
        raw = anchored(unwrapped(read_object(path)), definitions(ConnectorConfig), folder_of(path), limits)
        # A transform without its type or its predicate is at fault too, so all of them are left out.
        chain = ("transforms", "predicates")
        without = {*keys, *(chain if any(_is_of(name, key) for name in keys for key in chain) else ())}
        left = {name: value for name, value in raw.items() if not any(_is_of(name, key) for key in without)}
        return ConnectorConfig.model_validate(left, context=limits)
    except FaultyConfigError:
        return None


def _is_of(name: str, key: str) -> bool:
    """Returns whether a fault on `key` is about the setting `name`; `transforms.ALIAS` is the key of several."""
    return name == key or (key != "" and name.startswith(f"{key}."))


@matches_within(CHECK_S)
def checked(given: Mapping[str, str], worker: WorkerConfig) -> ConnectorConfig:
    """Checks the settings of a connector that come from no file, alone and with `worker`.

    A relative path is refused: there is no folder that it could count from. Placeholders read what the worker file
    allows for connectors made over REST. Raises ConfigError with all faults.
    """
    check_size(given, "config")
    if sum(map(placeholders_in, given.values())) > MOST_OVER_REST:
        raise FaultyConfigError(
            "config", [Fault("", f"has more than {MOST_OVER_REST} placeholders; write out what is no secret.")]
        )
    limits = worker.limits(over_rest=True)
    homes = tuple(_in_homes(given))
    readable = {name: text for name, text in given.items() if name not in {fault.key for fault in homes}}
    refused = (*homes, *_relative(readable, limits))
    try:
        config = ConnectorConfig.model_validate(readable, context=limits)
    except FaultyConfigError as error:
        raise FaultyConfigError(error.file, (*error.faults, *refused)) from None
    faults = (*refused, *_together(config, worker))
    if faults:
        raise FaultyConfigError(config.name, faults)
    return config


def _in_homes(given: Mapping[str, str]) -> Iterator[Fault]:
    """Yields a fault for each folder that counts from a user's home, before it is looked up.

    An answer would else say which users this machine has.
    """
    keys = definitions(ConnectorConfig)
    for name, text in given.items():
        if name in keys and keys[name].is_folder and text.lstrip().startswith("~"):
            yield Fault(name, f"{shown(name, text)} counts from a user's home folder; name one from / on.")


def _relative(given: Mapping[str, str], limits: Limits) -> Iterator[Fault]:
    """Yields a fault for each setting that `anchored` would have count from a folder."""
    for name, value in anchored(given, definitions(ConnectorConfig), Path("/"), limits).items():
        if value != given[name]:
            yield Fault(name, f"{shown(name, given[name])} is a relative path; name one from / on.")


def load_connectors(paths: Sequence[Path], worker: WorkerConfig | None = None) -> tuple[ConnectorFile, ...]:
    """Reads the connectors of several files, in their order; two of one name or with one output topic are refused.

    Raises ConfigError with all faults of all files.
    """
    files: list[ConnectorFile] = []
    errors = []
    before: list[OtherFile] = []
    for path in paths:
        try:
            file = load_connector(path, worker)
        except FaultyConfigError as error:
            errors.append(error)
            before.append(other_file(path))
            continue
        files.append(file)
        doubled = clashes(file.config, before)
        before.append(OtherFile(path, file.config.name, file.config))
        errors += [FaultyConfigError(str(path), doubled)] if doubled else []
    raise_all(errors)
    return tuple(files)


def other_file(path: Path) -> OtherFile:
    """Reads what `clashes` has to know of a file; of a faulty one that is its connector's name, if it has one."""
    try:
        config = load_connector(path).config
    except FaultyConfigError:
        return OtherFile(path, _name(path), None)
    return OtherFile(path, config.name, config)


def clashes(
    config: ConnectorConfig, others: Iterable[OtherFile], compare_s: float = COMPARE_S, other_s: float = OTHER_S
) -> tuple[Fault, ...]:
    """Returns the faults of `config` with each file of `others`: of its name, of its topics, and of its snapshots.

    `others` are all that there are, as a loop may lead through any number of them. The places of snapshots are looked
    at only for a connector that was made over REST, Iceberg tables for any. Patterns are matched for `compare_s` in
    all, and `other_s` for one of the others: what is not compared then is found when a topic is taken up.
    """
    others = tuple(others)
    valid = [(other.config, other.path) for other in others if other.config is not None and other.name != config.name]
    with matches_within(compare_s) as time_left:
        faults = tuple(fault for other in others for fault in _clash(config, other, other_s))
        loop = None if faults else loop_fault(config, valid)
    if not time_left():
        _log.warning("patterns of connectors take long: not all were compared", connector=config.name, then=_LATER)
    return (*faults, *([loop] if loop else ()))


def _clash(config: ConnectorConfig, other: OtherFile, other_s: float) -> tuple[Fault, ...]:
    if other.name == config.name:
        return (Fault("name", f'"{config.name}" is also in {other.path}; rename one.'),)
    if other.config is None:
        return ()
    place = place_clash(config, other.config)
    with matches_within(other_s):
        faults = (*pair_faults(config, other.config, other.path), place, table_clash(config, other.config))
    return tuple(fault for fault in faults if fault)


def _name(path: Path) -> str | None:
    try:
        return str(unwrapped(read_object(path)).get("name", "")).strip()
    except FaultyConfigError:
        return None


def unwrapped(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Flattens `{"name": …, "config": {…}}`; a flat mapping stays as it is. Raises ConfigError."""
    inner = raw.get("config")
    if not isinstance(inner, Mapping):
        return dict(raw)
    strange = [name for name in raw if name not in ("name", "config")]
    why = "unknown here; beside config there is only name. Settings go into config."
    faults = [Fault(name, errors.not_yet(name) or why) for name in strange]
    outside, inside = raw.get("name"), inner.get("name")
    if None not in (outside, inside) and outside != inside:
        faults.append(Fault("name", f'"{outside}" outside of config and "{inside}" inside; they must be equal.'))
    if faults:
        raise FaultyConfigError("connector", faults)
    return ({"name": raw["name"]} if "name" in raw else {}) | dict(inner)


def _together(config: ConnectorConfig, worker: WorkerConfig | None) -> tuple[Fault, ...]:
    chain = fit_faults(config.given, worker.given if worker else None, resolve, config.limits)
    faults = tuple(Fault(key, text) for key, text in chain)
    if worker is None:
        return faults
    faults = (*faults, *client_faults(worker, config), *override_faults(worker.override_policy, config))
    return (*faults, *_place_faults(config, worker))


def _place_faults(config: ConnectorConfig, worker: WorkerConfig) -> Iterator[Fault]:
    if config.snapshot_location and place_of(config.snapshot_location) == place_of(worker.storage_location):
        yield Fault("snapshot.location", "is the worker's storage.location; snapshots need a folder of their own.")
    elif config.limits.over_rest:
        yield from rest_faults_of_place(config, worker.storage_location, worker.snapshot_prefixes)
        own = (worker.storage_azure_account_name, azure_account(worker.storage_location))
        if worker.snapshot_prefixes is None and (fault := rest_fault_of_account(config, own)):
            yield fault

"""Checks the rules of the worker file that take more than one setting: who may reach REST, and what HTTPS needs."""

from __future__ import annotations

from collections.abc import Iterator

from connectors.config.errors import Fault
from connectors.config.fields import Listener
from connectors.config.worker import WorkerConfig
from connectors.placeholders import has_placeholder

_CERTIFICATE = "listeners.https.ssl.certificate.location"
_KEY = "listeners.https.ssl.key.location"
_CA = "listeners.https.ssl.ca.location"
_USERS = "rest.auth.users.file"


def rest_faults(worker: WorkerConfig) -> tuple[Fault, ...]:
    """Returns the faults of a worker's settings of REST."""
    return (*_reach(worker), *_users(worker), *_tls(worker), *_watch(worker))


def _all(worker: WorkerConfig) -> tuple[tuple[str, Listener], ...]:
    listeners = [("listeners", listener) for listener in worker.listeners]
    return (*listeners, *(("admin.listeners", listener) for listener in worker.admin_listeners or ()))


def _reach(worker: WorkerConfig) -> Iterator[Fault]:
    """A listener that other machines can reach asks for a decision on who may use it."""
    for key, listener in _all(worker):
        if not listener.is_loopback and worker.rest_auth is None:
            yield Fault(
                key,
                f"{_said(worker, key, listener)} can be reached from other machines; set rest.auth=basic with "
                f"{_USERS}, or rest.auth=none where everyone there may change connectors.",
            )


def _users(worker: WorkerConfig) -> Iterator[Fault]:
    if worker.rest_auth == "basic" and worker.rest_auth_users_file is None:
        yield Fault(_USERS, "missing; rest.auth=basic needs it: a file of lines NAME:HASH:ROLE.")
    if worker.rest_auth != "basic" and worker.rest_auth_users_file is not None:
        yield Fault(_USERS, "has no effect without rest.auth=basic; set that too.")


def _tls(worker: WorkerConfig) -> Iterator[Fault]:
    if any(listener.scheme == "https" for _, listener in _all(worker)):
        for key, path in ((_CERTIFICATE, worker.listeners_ssl_certificate), (_KEY, worker.listeners_ssl_key)):
            if path is None:
                yield Fault(key, "missing; a listener with https needs it: a file in PEM.")
    if worker.ssl_client_auth != "none" and worker.listeners_ssl_ca is None:
        yield Fault(_CA, f"missing; ssl.client.auth={worker.ssl_client_auth} needs it: a file in PEM.")


def _watch(worker: WorkerConfig) -> Iterator[Fault]:
    if worker.connectors_watch and worker.connectors_dir is None:
        yield Fault("connectors.watch", "has no effect without connectors.dir; set that too.")
    if worker.connectors_path is not None and not worker.connectors_path.is_dir():
        place = _said(worker, "connectors.dir", worker.connectors_path)
        yield Fault("connectors.dir", f"{place} is no folder; make it, or remove the key.")


def _said(worker: WorkerConfig, key: str, value: object) -> str:
    """Quotes a value, or the setting as it is written if a placeholder stands in it."""
    text = worker.given.get(key, "")
    return f'"{text if has_placeholder(text) else value}"'

"""Begins and ends the worker's REST interface: listeners, their applications, and who may ask them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from compactor.errors import KeyfoldError
from connectors.clock import SYSTEM_CLOCK
from connectors.config.clients.merged import client_config
from connectors.config.fields import is_folder
from connectors.config.worker import WorkerConfig
from connectors.dev.revision import revision
from connectors.rest.listeners import LIMITS, BoundListener, ClientLimits, advertised
from connectors.runtime.herder import Herder
from connectors.threads import CancellableThread

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from connectors.metrics.source_lag import SourceLagOf
    from connectors.rest.answers import HeldBytes
    from connectors.rest.context import RestContext

ADMIN: Final = "admin.listeners"
ASK_S: Final = 10.0


class MountedPage(Protocol):
    """The page for people, in front of REST: `over` puts it there; it works between `start` and `stop`."""

    def over(self, app: ASGIApp) -> ASGIApp:
        """Returns `app` with the page in front of it."""

    def start(self) -> None:
        """Begins what the page does without being asked; the listeners answer by then."""

    def stop(self) -> None:
        """Ends that, and takes back what was asked for and is not begun; the listeners answer until this returns."""


MakePage: TypeAlias = "Callable[[RestContext, SourceLagOf], MountedPage]"
"""Makes the page of a worker, from what endpoints work with and the lag of a connector's partitions at a time (ms)."""


@contextmanager
def listening(
    worker: WorkerConfig,
    herder: Herder,
    health: Callable[[], str],
    bound: Sequence[BoundListener],
    ready: Callable[[str], None],
    limits: ClientLimits = LIMITS,
    cluster_id: Callable[[WorkerConfig], ClusterId] | None = None,
    commit: Callable[[], str] = revision,
    page: MakePage | None = None,
) -> Iterator[None]:
    """Serves REST during the block; `ready` gets the URL of each listener once it answers.

    `health` says how the worker is: starting, healthy or unhealthy. `cluster_id` makes what asks for the id of the
    Kafka cluster, `commit` says which one this program is of. `page` makes the page for people, if there is to be one.
    """
    if not bound:
        yield
        return
    from prometheus_client import CollectorRegistry

    from connectors.metrics.collector import WorkerCollector
    from connectors.metrics.source_lag import SourceEnds
    from connectors.rest.answers import HeldBytes
    from connectors.rest.context import Identity, RestContext
    from connectors.rest.logger_levels import LoggerLevels
    from connectors.rest.security import BODIES_MAX
    from connectors.rest.server import RestServer
    from connectors.rest.slow_calls import Slow
    from connectors.runtime.supervised_connector import ActiveTopics

    where, cluster, clock = advertised(worker, bound[0]), (cluster_id or ClusterId)(worker), SYSTEM_CLOCK
    metrics = CollectorRegistry()
    ends = SourceEnds(worker, herder, clock)
    names, partitions = worker.metrics_names, worker.metrics_partitions
    metrics.register(WorkerCollector(herder, clock, ends.lag, names=names, partitions=partitions))
    identity = Identity(str(where), f"{where.host}:{where.port}", commit(), cluster.get)
    topics, slow = ActiveTopics(herder.connector), Slow(limits.wait_s, in_folder=is_folder(worker.storage_location))
    context = RestContext(herder, topics, worker, health, identity, metrics, LoggerLevels(), clock, slow)
    with ExitStack() as stack:
        for listener in bound:
            stack.callback(listener.socket.close)
        stack.callback(cluster.stop)
        stack.callback(ends.stop)
        ends.start()
        answers, bodies = HeldBytes("Answers", limits.answer_bytes), HeldBytes("Bodies of requests", BODIES_MAX)
        made = page(context, ends.lag) if page is not None and worker.ui_enable else None
        apps = [(each, _app(context, each, limits, answers, bodies, made)) for each in bound]
        server = RestServer(worker, apps, limits)
        stack.callback(server.stop)
        server.start()
        if made is not None:
            stack.callback(made.stop)
            made.start()
        for listener in bound:
            ready(listener.url)
        yield


def _app(
    context: RestContext,
    bound: BoundListener,
    limits: ClientLimits,
    answers: HeldBytes,
    bodies: HeldBytes,
    page: MountedPage | None,
) -> ASGIApp:
    from starlette.middleware.cors import CORSMiddleware

    from connectors.rest.answers import CountedAnswers
    from connectors.rest.app import make_app
    from connectors.rest.hosts import own_hosts
    from connectors.rest.security import BasicAuth, LimitedBodies, OwnPages, Users

    worker, is_admin = context.worker, bound.key == ADMIN
    app: ASGIApp = make_app(context, admin=is_admin or worker.admin_listeners is None, others=not is_admin)
    if page is not None and not is_admin:
        app = page.over(app)
    app = CountedAnswers(LimitedBodies(app, bodies), answers)
    if worker.rest_auth == "basic":
        assert worker.rest_auth_users_file is not None, "config.rest_rules asks for it"
        app = BasicAuth(app, Users(worker.rest_auth_users_file, limits.wait_s))
    origins = [origin.strip() for origin in (worker.access_control_allow_origin or "").split(",") if origin.strip()]
    app = OwnPages(app, origins)
    if origins:
        app = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=[method.strip() for method in worker.access_control_allow_methods.split(",")],
        )
    return own_hosts(app, worker, bound.listener)


class ClusterId:
    """The id of the Kafka cluster, asked on a thread of its own."""

    def __init__(self, worker: WorkerConfig) -> None:
        self._id = ""
        self._worker = worker
        self._thread = CancellableThread("cluster-id", self._ask)
        self._thread.start()

    def stop(self) -> None:
        """Asks no more."""
        self._thread.stop()

    def get(self) -> str:
        """Returns it, "" as long as no broker has answered."""
        return self._id

    def _ask(self, stop: threading.Event) -> None:
        from connectors.kafka.admin import Admin

        admin = Admin(client_config("admin", self._worker, None, {"log_level": 0}), ASK_S)
        while not stop.is_set() and not self._id:
            try:
                self._id = admin.cluster_id()
            except KeyfoldError:  # asked again: nothing waits for it
                stop.wait(ASK_S)

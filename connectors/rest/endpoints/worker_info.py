"""Answers `/` and `/health`: which worker this is, and how it is."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool

from connectors.metrics.measured import measured
from connectors.rest import bodies, shapes, views
from connectors.rest.context import ContextDependency, RestContext, error_responses
from connectors.runtime.status import ConnectorState

router = APIRouter(tags=["worker"])

_CODES: Final = {"starting": HTTPStatus.SERVICE_UNAVAILABLE, "unhealthy": HTTPStatus.INTERNAL_SERVER_ERROR}
_SAID: Final = {
    "starting": "Worker is still starting up.",
    "healthy": "Worker has completed startup and is ready to handle requests.",
    "unhealthy": "Spark, or the worker's streaming query, is gone; the worker ends.",
}


@router.get("/", response_model=shapes.ServerInfo)
async def get_root(context: ContextDependency) -> shapes.ServerInfo:
    """Tells the worker's version, and the id of the cluster of `bootstrap.servers`."""
    known = context.identity
    return shapes.ServerInfo(version=views.VERSION, commit=known.commit, kafka_cluster_id=known.cluster_id())


@router.get(
    "/health",
    response_model=shapes.WorkerHealth,
    responses={code: {"model": shapes.WorkerHealth} for code in (500, 503)},
)
async def get_health(context: ContextDependency, strict: Annotated[str | None, Query()] = None) -> JSONResponse:
    """Tells how the worker is (KIP-1017); with `strict=true` also whether all of its connectors are well."""
    status = context.health()
    message = _SAID[status]
    if status == "healthy" and bodies.flag(strict) and (unwell := await run_in_threadpool(_unwell, context)):
        status, message = "unhealthy", unwell
    return JSONResponse({"status": status, "message": message}, _CODES.get(status, HTTPStatus.OK))


@router.get("/metrics", response_class=PlainTextResponse, responses=error_responses(503))
async def get_metrics(context: ContextDependency) -> Response:
    """Shows the worker's metrics as Prometheus text."""
    text = await context.slow.metrics.run(generate_latest, context.metrics)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def _unwell(context: RestContext) -> str:
    """Returns what is wrong with connectors, "" if nothing is."""
    reasons, most_ms, now_ms = [], context.worker.health_max_lag_ms, context.clock.now_ms()
    for connector in context.herder.connectors():
        name = connector.name
        if connector.status.waits:
            reasons.append(f"connector {name} waits for an outage to end: {views.trace_of(connector)}")
        elif connector.status.state is ConnectorState.FAILED:
            reasons.append(f"connector {name} is FAILED: {views.trace_of(connector)}")
        elif most_ms is not None and (lag_ms := measured(connector).lag_ms(now_ms)) > most_ms:
            reasons.append(f"connector {name} is {lag_ms} ms behind, more than health.max.lag.ms ({most_ms}).")
    return " ".join(reasons)

"""Answers for a connector's state and tasks: status, pause, resume, stop, restart, topics."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from starlette.exceptions import HTTPException

from connectors.errors import NoConnectorError
from connectors.rest import bodies, shapes, views
from connectors.rest.answers import ShareDependency, json_answer
from connectors.rest.context import ContextDependency, RestContext, error_responses
from connectors.runtime.lifecycle import TargetState
from connectors.runtime.status import ConnectorState
from connectors.runtime.supervised_connector import Connector

router = APIRouter(prefix="/connectors/{connector}", tags=["lifecycle"])
_CHANGE: Final = error_responses(404, 409, 503)
"""How pause, resume and stop are answered if they fail."""


@router.get(
    "/status",
    response_model=shapes.ConnectorStateInfo,
    responses=error_responses(404),
)
def get_status(context: ContextDependency, connector: str) -> Response:
    """Shows the states of a connector and its tasks; `trace` is there only where it is FAILED."""
    existing = _existing(context, connector, f"No status found for connector {connector}")
    return json_answer(views.status(existing, context.identity.worker_id))


@router.get("/tasks", response_model=list[shapes.TaskInfo], responses=error_responses(404))
def get_tasks(context: ContextDependency, share: ShareDependency, connector: str) -> Response:
    """Lists a connector's tasks, one for each transactional id; none while it is stopped."""
    return json_answer(views.tasks(context.herder.connector(connector), share))


@router.get(
    "/tasks/{task}/status",
    response_model=shapes.TaskState,
    responses=error_responses(404),
)
def get_task_status(context: ContextDependency, connector: str, task: str) -> Response:
    """Shows the state of a task."""
    number = _number(task)
    missing = f"No status found for task {connector}-{number}"
    status = views.task_status(_existing(context, connector, missing), context.identity.worker_id, number)
    return json_answer(status or _not_found(missing))


@router.post(
    "/restart",
    status_code=HTTPStatus.NO_CONTENT,
    response_model=None,
    responses={202: {"model": shapes.ConnectorStateInfo}, **error_responses(404)},
)
def restart(
    context: ContextDependency,
    connector: str,
    include_tasks: Annotated[str | None, Query(alias="includeTasks")] = None,
    only_failed: Annotated[str | None, Query(alias="onlyFailed")] = None,
) -> Response:
    """Restarts a connector (KIP-745). Its tasks are restarted with it, as they are one run."""
    existing = _existing(context, connector, f"Unknown connector: {connector}")
    failed_only = bodies.flag(only_failed)
    is_due = _is_to_restart(existing, failed_only=failed_only)
    if is_due:
        context.herder.restart(connector)
    if not (bodies.flag(include_tasks) or failed_only):
        return Response(status_code=HTTPStatus.NO_CONTENT)
    planned = views.status(existing, context.identity.worker_id, planned=is_due)
    return json_answer(planned, HTTPStatus.ACCEPTED)


@router.post(
    "/tasks/{task}/restart",
    status_code=HTTPStatus.NO_CONTENT,
    response_class=Response,
    responses=error_responses(404),
)
def restart_task(context: ContextDependency, connector: str, task: str) -> None:
    """Restarts the connector of a task: all of its tasks are one run."""
    number = _number(task)
    existing = _existing(context, connector, f"Unknown connector: {connector}")
    if number not in range(existing.tasks):
        _not_found(f"Unknown task: {connector}-{number}")
    if _is_to_restart(existing):
        context.herder.restart(connector)


@router.put("/pause", status_code=HTTPStatus.ACCEPTED, response_class=Response, responses=_CHANGE)
async def pause(context: ContextDependency, connector: str) -> None:
    """Has a connector take nothing in and publish nothing; what it has open stays open."""
    await _target(context, connector, TargetState.PAUSED)


@router.put("/resume", status_code=HTTPStatus.ACCEPTED, response_class=Response, responses=_CHANGE)
async def resume(context: ContextDependency, connector: str) -> None:
    """Lets a paused or stopped connector run again."""
    await _target(context, connector, TargetState.RUNNING)


@router.put("/stop", status_code=HTTPStatus.NO_CONTENT, response_class=Response, responses=_CHANGE)
async def stop(context: ContextDependency, connector: str) -> None:
    """Stops a connector and lets go of everything that it holds (KIP-875)."""
    await _target(context, connector, TargetState.STOPPED)


@router.get("/topics", response_model=dict[str, shapes.ActiveTopicsInfo], responses=error_responses(403))
def get_topics(context: ContextDependency, connector: str) -> dict[str, Any]:
    """Lists the topics that a connector has read since it was made, or since they were reset (KIP-558)."""
    _tracked(context.worker.topic_tracking_enable, "tracking")
    try:
        topics = context.topics.of(connector)
    except NoConnectorError:
        topics = []
    return {connector: {"topics": topics}}


@router.put("/topics/reset", status_code=HTTPStatus.ACCEPTED, response_class=Response, responses=error_responses(403))
def reset_topics(context: ContextDependency, connector: str) -> None:
    """Forgets which topics a connector has used."""
    _tracked(context.worker.topic_tracking_enable, "tracking")
    _tracked(context.worker.topic_tracking_allow_reset, "tracking reset")
    context.topics.reset(connector)


def _tracked(allowed: bool, what: str) -> None:  # noqa: FBT001  # the setting itself
    if not allowed:
        raise HTTPException(HTTPStatus.FORBIDDEN, f"Topic {what} is disabled.")


def _is_to_restart(connector: Connector, *, failed_only: bool = False) -> bool:
    if connector.spec.target is TargetState.STOPPED:
        return False
    return not failed_only or connector.status.state is ConnectorState.FAILED


async def _target(context: RestContext, name: str, state: TargetState) -> None:
    try:
        await context.slow.changes.run(context.herder.specs.target, name, state)
    except NoConnectorError:
        _not_found(f"Unknown connector {name}")


def _number(task: str) -> int:
    """Returns the number of a task in a path; what is none is a path that there is not."""
    if re.fullmatch(r"-?[0-9]{1,9}", task) is None:
        _not_found("HTTP 404 Not Found")
    return int(task)


def _existing(context: RestContext, name: str, missing: str) -> Connector:
    try:
        return context.herder.connector(name)
    except NoConnectorError:
        return _not_found(missing)


def _not_found(message: str) -> Any:
    raise HTTPException(HTTPStatus.NOT_FOUND, message)

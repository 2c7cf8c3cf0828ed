"""What clients send about tasks, their steps, boards and notes, as types; see `requests.py`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from tenuto.model.task import TaskStatus
from tenuto.server.json_io import QueryParameters, RequestBody
from tenuto.server.requests import Count, Name, Tenant, Text, Token

PLAN_SCHEMA = "#/components/schemas/PlanFields"


class OpenTask(RequestBody, frozen=True, kw_only=True):
    """A task to open; `session_id` names the conversation that it comes from. With a `plan` it is run."""

    EXAMPLE = {
        "type": "contract_review",
        "goal": "Find what limits later employment",
        "plan": {
            "steps": [
                {"id": "read", "agent": "assistant:general", "output_key": "clauses", "retries": 2},
                {"id": "approval", "human_input": "Send this?", "after": ["read"]},
            ]
        },
    }

    type: Name
    goal: Text = ""
    session_id: Name | None = None
    # Read by `parse_plan`, whose errors name the step.
    plan: Annotated[Any, Meta(extra_json_schema={"anyOf": [{"$ref": PLAN_SCHEMA}, {"type": "null"}]})] = None
    tenant_id: Tenant | None = None
    site_id: Text | None = None


class ChangeTask(RequestBody, frozen=True, kw_only=True):
    """The new status of a task; an end may have a result. With `if_version`, only if the task has that version."""

    EXAMPLE = {"status": "completed", "result": {"answer": "Twelve months, in Germany alone"}}

    status: Literal["running", "completed", "failed"]
    result: Any = None
    if_version: Count | None = None


class ResumeTask(RequestBody, frozen=True, kw_only=True):
    """Where to resume: at this step and all that come after it; without one, at the failed steps."""

    EXAMPLE = {"from_step": "read"}

    from_step: Name | None = None


class AnswerStep(RequestBody, frozen=True, kw_only=True):
    """A person's answer to a step that waits for one."""

    EXAMPLE = {"value": "yes"}

    value: Any


class CompleteStep(RequestBody, frozen=True, kw_only=True):
    """The result that a remote agent made of its step."""

    EXAMPLE = {"output": {"clauses": [7, 12]}}

    output: Any


class FailStep(RequestBody, frozen=True, kw_only=True):
    """Why a remote agent could not do its step: a code of its own, in small letters and underscores. `attempt` is
    `attempts` of the step as the agent read it: with it, the request can be repeated safely."""

    code: Annotated[str, Meta(pattern="^[a-z][a-z_]{0,39}$")] = "agent_failed"
    attempt: Annotated[int, Meta(ge=1)] | None = None


class TaskListQuery(QueryParameters, kw_only=True, frozen=True):
    """Which tasks to list."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    cursor: Annotated[str, Meta(description="Continues a listing: the `cursor` of its last page.")] | None = None
    session_id: Name | None = None
    status: TaskStatus | None = None
    newest_first: bool = False


class ContextQuery(QueryParameters, kw_only=True, frozen=True):
    """What the prompt of an agent is written for."""

    role: Annotated[Name, Meta(description="The agent's role in its prompt, by default its name.")] | None = None


class WriteEntry(RequestBody, frozen=True, kw_only=True):
    """The new value of a key of a board. `agent` may be named by the header Tenuto-Agent instead; `token` is that
    of the agent's lock, and an `if_version` of 0 requires that the key has no value yet."""

    EXAMPLE = {"agent": "labour-law", "value": {"clause": 7, "months": 12}}

    value: Any
    agent: Name | None = None
    token: Token | None = None
    if_version: Count | None = None


class AppendItem(RequestBody, frozen=True, kw_only=True):
    """An item for the end of a list; `agent` and `token` as in a write."""

    EXAMPLE = {"agent": "labour-law", "item": {"clause": 7}}

    item: Any
    agent: Name | None = None
    token: Token | None = None


class Increment(RequestBody, frozen=True, kw_only=True):
    """What to add to a number; `agent` and `token` as in a write."""

    EXAMPLE = {"agent": "labour-law", "by": 1}

    by: int | float = 1
    agent: Name | None = None
    token: Token | None = None


class LockKey(RequestBody, frozen=True, kw_only=True):
    """For how many seconds to lock a key, by default one minute; with its `token`, a lock is extended."""

    EXAMPLE = {"agent": "labour-law", "seconds": 30}

    seconds: Annotated[float, Meta(ge=0.001, le=3600)] | None = None
    agent: Name | None = None
    token: Token | None = None


class Holding(QueryParameters, kw_only=True, frozen=True):
    """The lock under which something is done."""

    token: Token | None = None


class UnlockQuery(QueryParameters, kw_only=True, frozen=True):
    """The lock to give back."""

    token: Token


class WriteNote(RequestBody, frozen=True, kw_only=True):
    """A private note of an agent; an `if_version` of 0 requires that it does not exist yet."""

    EXAMPLE = {"value": "ask for annex B"}

    value: Any
    if_version: Count | None = None

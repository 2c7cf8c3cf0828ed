"""Tasks over any store, with ids in order, as tests open them."""

from __future__ import annotations

from typing import Any

from tenuto.model import Scope
from tenuto.model.policy import TaskPolicy
from tenuto.model.task import NewTask, Task
from tenuto.ports import Clock, Store
from tenuto.sessions import fresh_id
from tenuto.tasks import Tasks


def tasks_over(store: Store, clock: Clock, **policy: Any) -> Tasks:
    """A desk on a store."""
    return Tasks(state=store.state, sessions=store.sessions, policy=TaskPolicy(**policy), clock=clock, new_id=fresh_id)


async def opened(tasks: Tasks, scope: Scope, **fields: Any) -> Task:
    """A task that an agent has begun."""
    task = await tasks.open(scope, NewTask(**{"type": "review", **fields}))
    return await tasks.begin(scope, task.id)

"""Whether the loop that an adapter runs on refuses a call, and why."""

from __future__ import annotations

from tenuto.errors import Invalid
from tenuto.integrations.event_loops import LoopBridge


def refuses_because(bridge: LoopBridge, why: str) -> bool:
    try:
        bridge.wait(nothing)
    except Invalid as error:
        return why in str(error)
    return False


async def nothing(_: object) -> None:
    pass

"""How long a model may take for a whole answer."""

from __future__ import annotations

from datetime import timedelta

from tenuto.ports import ChatModel


def time_limit(model: ChatModel, timeout: timedelta) -> float | None:
    """Seconds for a whole answer: `timeout` for each link of a chain; `None` for a model on loopback without a limit.

    Such a model ends its answer by itself, when it falls silent.
    """
    # By attribute: `isinstance` with a protocol takes longer than the rest of a round.
    if getattr(model, "unlimited", False):
        return None
    links: int = getattr(model, "chain_length", 0) or 1
    return timeout.total_seconds() * links

"""An agent that the workers have; replace it with your own."""

import tenuto


@tenuto.agent("reader")
async def read(ctx: tenuto.AgentContext) -> str:
    """Tell what the task is about."""
    return f"read: {ctx.goal}"

"""An MCP client with a memory: it starts `tenuto mcp` and keeps a conversation with its tools. No key is needed.

Run: pip install '.[mcp]' && python examples/mcp_client.py
"""

import asyncio
import os
import sys
from tempfile import TemporaryDirectory

from mcp import Client
from mcp.client.stdio import StdioServerParameters


async def main(file: str) -> None:
    # The same for Claude Desktop, an IDE or an agent framework: this command, and the user it acts for.
    command = ["-m", "tenuto", "mcp", "--user", "ann", "--store", f"sqlite:///{file}"]
    server = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
    async with Client(server) as client:

        async def call(tool: str, **arguments: object) -> dict:
            return (await client.call_tool(tool, arguments)).structured_content

        session = (await call("create_session", title="Moving house"))["id"]
        await call("append_message", session_id=session, text="I live in Bologna with my two cats.")
        await call("append_message", session_id=session, text="Noted.", role="assistant")
        await call("remember", text="I live in Bologna with my two cats.", subject="home town")

        # In another session, days later: the memory is part of what the model should see.
        later = (await call("create_session"))["id"]
        await call("append_message", session_id=later, text="Where do I live?")
        context = await call("assemble_context", session_id=later)
        print("messages:", [message["text"] for message in context["messages"]])
        print("memories:", [memory["text"] for memory in context["memories"]])


with TemporaryDirectory() as folder:
    asyncio.run(main(f"{folder}/chat.db"))

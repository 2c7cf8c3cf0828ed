"""The openai package for Node, unmodified, against a server."""

from __future__ import annotations

import json

from tests.journeys.openai_clients import openai_served
from tests.npm_clients import install_clients, run_node


async def test_the_node_client_talks_streams_and_lists() -> None:
    place = await install_clients()
    async with openai_served(embedder="local") as opened:
        got = json.loads(await run_node("openai_client.mjs", opened.base_url, opened.key, cwd=place))
    assert "Tom" in got["whole"]
    assert got["final"] == got["whole"]
    assert (got["events"][0], got["events"][-1]) == ("response.created", "response.completed")
    assert got["items"] == 5
    assert got["refused"] == [404, "response_not_found"]
    assert got["said"] == got["completion"]
    assert (got["last"], got["dimensions"]) == ("stop", 512)

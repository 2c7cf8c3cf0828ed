"""The openai package for Node, unmodified, against a server."""

from __future__ import annotations

import asyncio
import json

from tests.journeys.openai_clients import openai_served
from tests.npm_package import NODE, npm_package

SDK = ("openai", "7.55.0", "0r4snVSRN46m4wL2vXCW5Xw6CKGPbdNI8t79KZOpe8GKKPmhL8peDXN8YOY/2ipsOVWSfsP/vgkLjTmWB+kMug==")
SCRIPT = """
const [sdk, baseURL, apiKey] = process.argv.slice(1), { OpenAI } = require(sdk);
const user = (content) => ({ role: "user", content });
(async () => {
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const conversation = await client.conversations.create({ items: [user("My cat is called Tom.")] });
  const asked = { model: "gpt-5", input: "What is my cat called?", conversation: conversation.id };
  const whole = await client.responses.create(asked);
  const events = [];
  const stream = client.responses.stream(asked);
  for await (const event of stream) events.push(event.type);
  const final = await stream.finalResponse();
  const items = [];
  const listed = client.conversations.items.list(conversation.id, { order: "asc", limit: 2 });
  for await (const item of listed) items.push(item);
  const completion = await client.chat.completions.create({ model: "gpt-5", messages: [user("Hi")] });
  const chunks = [];
  for await (const chunk of await client.chat.completions.create(
    { model: "gpt-5", messages: [user("Hi")], stream: true })) chunks.push(chunk);
  const vectors = await client.embeddings.create({ model: "any", input: "one" });
  let refused = null;
  try { await client.responses.retrieve("resp_absent"); } catch (error) { refused = [error.status, error.code]; }
  console.log(JSON.stringify({
    whole: whole.output_text, final: final.output_text, events, items: items.length, refused,
    completion: completion.choices[0].message.content, last: chunks.at(-1).choices[0].finish_reason,
    said: chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join(""),
    dimensions: vectors.data[0].embedding.length,
  }));
})();
"""


async def test_the_node_client_talks_streams_and_lists() -> None:
    sdk = await asyncio.to_thread(npm_package, *SDK)
    async with openai_served(embedder="local") as opened:
        node = await asyncio.create_subprocess_exec(
            NODE, "-e", SCRIPT, str(sdk), opened.base_url, opened.key,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        told, wrong = await node.communicate()
    assert node.returncode == 0, wrong.decode()
    got = json.loads(told)
    assert "Tom" in got["whole"]
    assert got["final"] == got["whole"]
    assert (got["events"][0], got["events"][-1]) == ("response.created", "response.completed")
    assert got["items"] == 5
    assert got["refused"] == [404, "response_not_found"]
    assert got["said"] == got["completion"]
    assert (got["last"], got["dimensions"]) == ("stop", 512)

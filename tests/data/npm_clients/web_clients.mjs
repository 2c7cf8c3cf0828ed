/** The AI SDK's chat and AG-UI's agent, unmodified, as a page uses them. Prints what they hold in the end, as JSON. */

import { HttpAgent } from "@ag-ui/client";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithToolCalls } from "ai";

import { PageChat, textOf } from "./page_chat.mjs";

const [base, user] = process.argv.slice(2);
const headers = { "X-Tenant-ID": "acme", "X-User-ID": user };
const api = `${base}/v1/ai-sdk/chat`;
const look = { name: "look", description: "Look at the page.", parameters: { type: "object", properties: {} } };

class Chat extends PageChat {
  constructor(id, messages = []) {
    const transport = new DefaultChatTransport({ api, headers, body: { tools: [look] } });
    const sendAutomaticallyWhen = lastAssistantMessageIsCompleteWithToolCalls;
    super({ id, messages, transport, sendAutomaticallyWhen, onToolCall });
    const self = this;
    function onToolCall({ toolCall }) {
      self.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output: { seen: "red" } });
    }
  }
}

const told = (messages) => messages.map((message) => [message.role, textOf(message)]);
const post = (path) => fetch(`${base}${path}`, { method: "POST", headers });
const get = async (path) => (await fetch(`${base}${path}`, { headers })).json();

async function aiSdk() {
  const page = new Chat("ui");
  await page.sendMessage({ text: "What is there?" });
  await page.until("Red.");
  while (page.status !== "ready") await new Promise(setImmediate);
  await page.regenerate();
  const first = told(page.messages);
  const parts = page.messages.at(-1).parts.map((part) => part.type);

  const left = page.sendMessage({ text: "Count" });
  await page.until("One two ");
  await page.stop();
  await left;
  const reloaded = new Chat("ui", (await get("/v1/ai-sdk/chat/ui")).messages);
  const resumed = reloaded.resumeStream();
  await reloaded.until("One two ");
  await post("/v1/ai-sdk/chat/ui/stop");
  await resumed;
  await reloaded.resumeStream();
  return { first, parts, reloaded: told(reloaded.messages), status: reloaded.status, error: String(reloaded.error) };
}

async function agUi() {
  const agent = new HttpAgent({ url: `${base}/v1/ag-ui/helper`, headers, threadId: "agent", initialState: { a: 1 } });
  agent.addMessage({ id: "u1", role: "user", content: "What is there?" });
  await agent.runAgent({ tools: [look] });
  const [call] = agent.messages.at(-1).toolCalls;
  agent.addMessage({ id: "o1", role: "tool", toolCallId: call.id, content: "red" });
  await agent.runAgent({ tools: [look] });
  const reloaded = new HttpAgent({ url: `${base}/v1/ag-ui/helper`, headers, threadId: "agent" });
  await reloaded.runAgent();
  const told = (one) => one.messages.map(({ id, role, content }) => [id, role, content ?? ""]);
  return { live: told(agent), reloaded: told(reloaded), state: reloaded.state };
}

console.log(JSON.stringify({ aiSdk: await aiSdk(), agUi: await agUi() }));

// A conversation through the types that openapi-typescript makes of the server's document: strict, and without a cast.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.ts";

const [base, user] = process.argv.slice(2) as [string, string];
const client = createClient<paths>({ baseUrl: base, headers: { "X-User-ID": user } });

const { data: reply, error } = await client.POST("/v1/chat", { body: { message: "What is there?" } });
if (error || typeof reply === "string") throw new Error(error?.code);
const session: string = reply.session_id;

const path = { session_id: session };
await client.PATCH("/v1/sessions/{session_id}", { params: { path }, body: { attributes: { vip: true } } });
const said: components["schemas"]["NewMessage"] = { role: "user", text: "Mine.", phase: "own" };
await client.POST("/v1/sessions/{session_id}/messages", { params: { path }, body: { messages: [said] } });
const { data: page } = await client.GET("/v1/sessions/{session_id}/messages", { params: { path, query: { head: true } } });
const { data: stream } = await client.POST("/v1/chat", { body: { message: "And?", stream: true }, parseAs: "text" });
const { error: refusal } = await client.GET("/v1/sessions/{session_id}", { params: { path: { session_id: "none" } } });
const code: components["schemas"]["ErrorCode"] | undefined = refusal?.code;

const texts = page?.messages.map((message) => message.text);
console.log(JSON.stringify({ texts, vip: page?.session?.attributes["vip"], code, done: stream?.includes("event: done") }));

// Prints what the openai package for Node made of a server: its address and a key are the arguments.
import { OpenAI } from "openai";

const [baseURL, apiKey] = process.argv.slice(2);
const user = (content) => ({ role: "user", content });
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

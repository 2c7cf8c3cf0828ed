export { connect, ConnectionLost, Tenuto, TenutoError } from "./client.ts";
export type { Attempt, ChatEvent, Options, Say, Who } from "./client.ts";
export type * from "./types.ts";

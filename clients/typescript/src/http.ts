// Requests to a server: the headers of a scope, retries, and streams of events.
//
// A request is sent again when that cannot do twice what was asked once: it is repeatable (a read, or a write guarded by
// its key), or the server has not taken it.

import type { Problem } from "./types.ts";

/** For whom a request acts; what is left out is the key's own. */
export interface Who {
  tenant?: string;
  site?: string;
  user?: string;
  channel?: string;
  chat?: string;
  thread?: string;
}

export interface Options extends Who {
  /** An API key or a token. */
  key?: string;
  /** How often a request is sent again. */
  retries?: number;
  /** Milliseconds until a request without an answer is given up; answers of a model have ten minutes. */
  timeout?: number;
  fetch?: typeof globalThis.fetch;
}

/** What a single call may say. */
export interface Attempt {
  /** The same key does the same thing once. */
  idempotencyKey?: string;
  signal?: AbortSignal;
}

export interface Call extends Attempt {
  body?: unknown;
  query?: Record<string, unknown>;
  headers?: Record<string, string>;
  repeatable?: boolean;
  answers?: boolean;
  /** After a retry, 404 is success: what should go is gone. */
  gone?: boolean;
}

export interface ServerEvent {
  name: string;
  data: string;
  id?: string;
}

/** An error of the server. */
export class TenutoError extends Error {
  readonly code: string;
  readonly status: number;
  readonly retryAfter: number | undefined;
  readonly problem: Partial<Problem> & Record<string, unknown>;

  constructor(status: number, problem: Partial<Problem> & Record<string, unknown>, cause?: unknown) {
    super(problem.detail ?? `the server answers with status ${status}`, { cause });
    this.name = "TenutoError";
    this.status = status;
    this.code = problem.code ?? `http_${status}`;
    const wish = problem["retry_after"];
    this.retryAfter = typeof wish === "number" ? wish : undefined;
    this.problem = problem;
  }
}

/** The server did not answer, or not to the end; the call may have been carried out. */
export class ConnectionLost extends TenutoError {
  constructor(cause: unknown) {
    super(503, { code: "unavailable", detail: "the server does not answer; the call may have been carried out" }, cause);
  }
}

const WHO: Record<keyof Who, string> = {
  tenant: "X-Tenant-ID",
  site: "X-Site-ID",
  user: "X-User-ID",
  channel: "X-Channel",
  chat: "X-Chat-ID",
  thread: "X-Thread-ID",
};
const LONGEST_PAUSE = 10;
const ANSWER_TIMEOUT = 600_000;
const MODEL_FAILED = ["model_failed", "model_timeout", "task_failed"];

/** The address of a route; ids may contain anything. */
export function path(...parts: string[]): string {
  const encoded = parts.map((part) => (/^\.+$/.test(part) ? part.replaceAll(".", "%2E") : encodeURIComponent(part)));
  return ["/v1", ...encoded].join("/");
}

export class Http {
  private readonly url: string;
  private readonly options: Options;

  constructor(url: string, options: Options) {
    this.url = url.replace(/\/+$/, "");
    this.options = options;
  }

  as(who: Who): Http {
    return new Http(this.url, { ...this.options, ...who });
  }

  async json<T>(method: string, address: string, call: Call = {}): Promise<T> {
    const body = await this.send(method, address, call, async (response) => (response.ok ? response.text() : ""));
    return (body === "" ? undefined : JSON.parse(body)) as T;
  }

  /** What `read` makes of the answer; if that is lost meanwhile, the request is sent again. */
  async send<T>(
    method: string,
    address: string,
    call: Call,
    read: (response: Response, timer: Timer) => Promise<T>,
  ): Promise<T> {
    const { fetch = globalThis.fetch, timeout = 30_000 } = this.options;
    const request = this.request(method, call);
    for (let attempt = 0; ; attempt++) {
      let error: TenutoError;
      let again = call.repeatable ?? false;
      const timer = new Timer(call.answers ? ANSWER_TIMEOUT : timeout, call.signal);
      try {
        const response = await fetch(this.address(address, call.query), { ...request, signal: timer.signal });
        if (response.ok || (call.gone && attempt > 0 && response.status === 404)) return await read(response, timer);
        error = await errorOf(response);
        again = mayRepeat(error, again);
      } catch (lost) {
        if (call.signal?.aborted) throw lost;
        error = new ConnectionLost(lost);
      } finally {
        timer.stop();
      }
      if (!again) throw error;
      await this.pause(attempt, error);
    }
  }

  /** Wait before the next attempt; throw the error if there is none. */
  async pause(attempt: number, error: TenutoError): Promise<void> {
    const pause = error.retryAfter ?? Math.min(0.1 * 2 ** attempt, LONGEST_PAUSE) * (0.5 + Math.random() / 2);
    if (attempt >= (this.options.retries ?? 4) || pause > LONGEST_PAUSE) throw error;
    await new Promise((resolve) => setTimeout(resolve, pause * 1000));
  }

  /** Server-sent events, for as long as they come: each wait for the next piece has the time of an answer. */
  async *events(method: string, address: string, call: Call): AsyncGenerator<ServerEvent> {
    const [response, timer] = await this.send(method, address, call, async (...answer) => answer);
    if (response.body === null) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    try {
      for (;;) {
        timer.restart();
        const { done, value } = await reader
          .read()
          .catch((lost: unknown) => {
            throw call.signal?.aborted ? lost : new ConnectionLost(lost);
          })
          .finally(() => timer.stop());
        if (done) return;
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop() ?? "";
        for (const block of blocks) {
          const event = parseEvent(block);
          if (event === undefined) continue;
          if (event.name === "error") throw new TenutoError(500, JSON.parse(event.data));
          yield event;
        }
      }
    } finally {
      await reader.cancel().catch(() => undefined);
    }
  }

  private address(address: string, query: Record<string, unknown> = {}): string {
    const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
    const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
    return this.url + address + (given.length > 0 ? `?${search}` : "");
  }

  private request(method: string, call: Call): RequestInit {
    const { key } = this.options;
    const headers: Record<string, string> = {};
    for (const [name, value] of Object.entries(call.headers ?? {})) headers[name] = headerValue(value);
    if (key !== undefined) headers["Authorization"] = `Bearer ${key}`;
    if (call.idempotencyKey !== undefined) headers["Idempotency-Key"] = headerValue(call.idempotencyKey);
    if (call.body !== undefined) headers["Content-Type"] = "application/json";
    for (const [name, header] of Object.entries(WHO)) {
      const value = this.options[name as keyof Who];
      if (value !== undefined) headers[header] = headerValue(value);
    }
    const body = call.body === undefined ? {} : { body: JSON.stringify(call.body) };
    // Headers that cannot be sent are an error of the caller, not of the connection.
    return { method, headers: new Headers(headers), ...body };
  }
}

/** Gives a request up after a time, unless it is stopped or restarted. */
class Timer {
  readonly signal: AbortSignal;
  private readonly controller = new AbortController();
  private readonly limit: number;
  private waiting: ReturnType<typeof setTimeout> | undefined;

  constructor(limit: number, caller: AbortSignal | undefined) {
    this.limit = limit;
    this.signal = caller === undefined ? this.controller.signal : AbortSignal.any([caller, this.controller.signal]);
    this.restart();
  }

  restart(): void {
    this.stop();
    this.waiting = setTimeout(() => this.controller.abort(new DOMException("no answer", "TimeoutError")), this.limit);
  }

  stop(): void {
    clearTimeout(this.waiting);
  }
}

/** UTF-8 in a header: `fetch` takes one character for each byte. */
function headerValue(value: string): string {
  return String.fromCharCode(...new TextEncoder().encode(value));
}

async function errorOf(response: Response): Promise<TenutoError> {
  const problem = (await response.json().catch(() => ({}))) as Record<string, unknown>;
  const wish = Number(response.headers.get("retry-after") ?? Number.NaN);
  if (problem["retry_after"] === undefined && Number.isFinite(wish)) problem["retry_after"] = wish;
  return new TenutoError(response.status, problem);
}

function mayRepeat(error: TenutoError, repeatable: boolean): boolean {
  if (error.retryAfter === undefined || MODEL_FAILED.includes(error.code)) return false;
  if (error.status === 429 || error.code === "circuit_open") return true;
  return error.status === 503 && repeatable;
}

function parseEvent(block: string): ServerEvent | undefined {
  const event: ServerEvent = { name: "message", data: "" };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const [field, value] = [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
    if (field === "event") event.name = value;
    else if (field === "id") event.id = value;
    else if (field === "data") event.data += (event.data === "" ? "" : "\n") + value;
  }
  return event.data === "" ? undefined : event;
}

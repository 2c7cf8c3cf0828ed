// The client: turns, sessions, memories and tasks of a server.

import { ConnectionLost, Http, path } from "./http.ts";
import type { Attempt, Call, Options, Who } from "./http.ts";
import type * as T from "./types.ts";

export { ConnectionLost, TenutoError } from "./http.ts";
export type { Attempt, Options, Who } from "./http.ts";

/** A message, or its text alone. */
export type Say = string | T.NewMessage;

/** What happens in a turn; the last event is `done`. `id` numbers the events where the server can resume a stream. */
export type ChatEvent = { id?: string } & (
  | { type: "start"; session_id: string; trace_id: string | null; turn: number; created: boolean }
  | { type: "reasoning"; text: string }
  | { type: "delta"; text: string }
  | { type: "tool"; name: string; state: "started" | "done" | "failed"; milliseconds?: number; error?: string | null }
  | {
      type: "step";
      id: string;
      state: "started" | "done" | "failed";
      titles: { en?: string; zh?: string };
      milliseconds?: number | null;
      error?: string | null;
    }
  | ({ type: "done" } & T.ReplyView)
);

/** Connect to a server; requests act for whom the key stands, or for the user, chat or site that is named. */
export function connect(url: string, options: Options = {}): Tenuto {
  return new Tenuto(new Http(url, options));
}

export class Tenuto {
  readonly sessions: Sessions;
  readonly memories: Memories;
  readonly tasks: Tasks;
  private readonly http: Http;

  constructor(http: Http) {
    this.http = http;
    this.sessions = new Sessions(http);
    this.memories = new Memories(http);
    this.tasks = new Tasks(http);
  }

  /** The same connection for another user, chat or site. */
  as(who: Who): Tenuto {
    return new Tenuto(this.http.as(who));
  }

  /** For whom requests act. */
  scope(): Promise<T.ScopeView> {
    return this.http.json("GET", path("scope"), { repeatable: true });
  }

  assistants(): Promise<T.AssistantList> {
    return this.http.json("GET", path("assistants"), { repeatable: true });
  }

  /** Store the user's words, take the session, and bring what the model should see: `summary` and `window`. */
  begin(words: Say, options: Attempt & { session?: string; window?: number } = {}): Promise<T.TurnView> {
    const { session, window, ...attempt } = options;
    const body: T.BeginAnyTurnBody = { message: message(words, "user"), session_id: session ?? null, window: window ?? null };
    return this.http.json("POST", path("turns"), keyed(body, attempt));
  }

  /** Store the reply and release the session; again has no effect. */
  finish(
    turn: T.TurnView,
    reply: Say | T.NewMessage[],
    rest: Pick<T.FinishTurnBody, "usage" | "changes"> = {},
  ): Promise<T.AppendResultView> {
    const messages = (Array.isArray(reply) ? reply : [reply]).map((one) => message(one, "assistant"));
    return this.http.json("POST", path("turns", turn.turn_id, "finish"), { body: { messages, ...rest }, repeatable: true });
  }

  renew(turn: T.TurnView): Promise<T.LeaseView> {
    return this.http.json("POST", path("turns", turn.turn_id, "renew"), { repeatable: true });
  }

  /** Release the session without a reply; the same idempotency key resumes the turn. */
  abandon(turn: T.TurnView): Promise<T.AppendResultView> {
    return this.http.json("POST", path("turns", turn.turn_id, "abandon"), { repeatable: true });
  }

  /** Say something to an assistant and get the whole answer. */
  ask(body: T.ChatBody, attempt: Attempt = {}): Promise<T.ReplyView> {
    return this.http.json("POST", path("chat"), { ...keyed({ ...body, stream: false }, attempt), answers: true });
  }

  /**
   * The same as it happens. A lost connection is made again and the turn joined; if it has ended meanwhile, only `done`
   * follows. A caller that leaves does not end the turn; `stop` does.
   */
  async *stream(body: T.ChatBody, attempt: Attempt = {}): AsyncGenerator<ChatEvent> {
    const call = { ...keyed({ ...body, stream: true }, attempt), answers: true };
    let seen = 0;
    for (let lost = 0; ; lost++) {
      try {
        for await (const { name, data, id } of this.http.events("POST", path("chat"), call)) {
          const number = id === undefined ? undefined : Number(id.split(".").at(-1));
          if (number !== undefined && number <= seen) continue;
          seen = number ?? seen;
          yield { type: name, ...JSON.parse(data), ...(id === undefined ? {} : { id }) } as ChatEvent;
        }
        return;
      } catch (error) {
        if (!(error instanceof ConnectionLost)) throw error;
        await this.http.pause(lost, error);
      }
    }
  }

  /** Stop the turn that runs in a session; what it has said so far is its answer. */
  stop(session: string): Promise<T.StopView> {
    return this.http.json("POST", path("sessions", session, "stop"), { repeatable: true });
  }
}

class Sessions {
  private readonly http: Http;

  constructor(http: Http) {
    this.http = http;
  }

  create(body: T.CreateSession = {}, attempt: Attempt = {}): Promise<T.SessionView> {
    return this.http.json("POST", path("sessions"), keyed(body, attempt));
  }

  get(id: string): Promise<T.SessionDetail> {
    return this.http.json("GET", path("sessions", id), { repeatable: true });
  }

  list(query: { limit?: number; cursor?: string; q?: string; status?: T.Status } = {}): Promise<T.SessionList> {
    return this.http.json("GET", path("sessions"), { query, repeatable: true });
  }

  /** Only what is named changes; with `if_version`, of that version alone. */
  change(id: string, body: T.ChangeSession): Promise<T.SessionView> {
    return this.http.json("PATCH", path("sessions", id), { body, repeatable: body.if_version == null });
  }

  delete(id: string): Promise<void> {
    return this.http.json("DELETE", path("sessions", id), { repeatable: true, gone: true });
  }

  /** The newest messages, or those next before or after a sequence number; oldest first. */
  messages(
    id: string,
    query: { limit?: number; before?: number; after?: number; summaries?: boolean; head?: boolean } = {},
  ): Promise<T.MessageList> {
    return this.http.json("GET", path("sessions", id, "messages"), { query, repeatable: true });
  }

  append(id: string, messages: T.NewMessage[], options: Attempt & { usage?: T.UsageBody } = {}): Promise<T.AppendResultView> {
    const { usage, ...attempt } = options;
    return this.http.json("POST", path("sessions", id, "messages"), keyed({ messages, usage: usage ?? null }, attempt));
  }

  reset(id: string): Promise<T.SessionView> {
    return this.http.json("POST", path("sessions", id, "reset"));
  }

  fork(id: string, body: T.ForkSession = {}): Promise<T.SessionView> {
    return this.http.json("POST", path("sessions", id, "fork"), { body });
  }

  truncate(id: string, body: T.TruncateSession): Promise<T.SessionView> {
    return this.http.json("POST", path("sessions", id, "truncate"), { body });
  }
}

class Memories {
  private readonly http: Http;

  constructor(http: Http) {
    this.http = http;
  }

  search(body: T.SearchMemories): Promise<T.MemoryHits> {
    return this.http.json("POST", path("memories", "search"), { body, repeatable: true });
  }

  list(query: { limit?: number; cursor?: string; kind?: T.MemoryKind; session_id?: string } = {}): Promise<T.MemoryList> {
    return this.http.json("GET", path("memories"), { query, repeatable: true });
  }

  /** One that is remembered already is counted. */
  add(body: T.AddMemory): Promise<T.MemoryView> {
    return this.http.json("POST", path("memories"), { body, repeatable: true });
  }

  get(id: string): Promise<T.MemoryView> {
    return this.http.json("GET", path("memories", id), { repeatable: true });
  }

  change(id: string, body: T.ChangeMemory): Promise<T.MemoryView> {
    return this.http.json("PATCH", path("memories", id), { body, repeatable: true });
  }

  forget(id: string): Promise<void> {
    return this.http.json("DELETE", path("memories", id), { repeatable: true, gone: true });
  }

  preferences(): Promise<T.PreferenceList> {
    return this.http.json("GET", path("memories", "preferences"), { repeatable: true });
  }

  setPreferences(preferences: string[]): Promise<T.PreferenceList> {
    return this.http.json("PUT", path("memories", "preferences"), { body: { preferences }, repeatable: true });
  }
}

class Tasks {
  private readonly http: Http;

  constructor(http: Http) {
    this.http = http;
  }

  /** Open a task; with a plan, the server's workers run it. */
  open(body: T.OpenTask, attempt: Attempt = {}): Promise<T.TaskView> {
    return this.http.json("POST", path("tasks"), keyed(body, attempt));
  }

  get(id: string): Promise<T.TaskDetail> {
    return this.http.json("GET", path("tasks", id), { repeatable: true });
  }

  list(query: { limit?: number; cursor?: string; session_id?: string; status?: T.TaskStatus } = {}): Promise<T.TaskList> {
    return this.http.json("GET", path("tasks"), { query, repeatable: true });
  }

  change(id: string, body: T.ChangeTask): Promise<T.TaskView> {
    return this.http.json("PATCH", path("tasks", id), { body, repeatable: body.if_version == null });
  }

  delete(id: string): Promise<void> {
    return this.http.json("DELETE", path("tasks", id), { repeatable: true, gone: true });
  }

  cancel(id: string): Promise<T.TaskDetail> {
    return this.http.json("POST", path("tasks", id, "cancel"), { repeatable: true });
  }

  resume(id: string, body: T.ResumeTask = {}): Promise<T.TaskDetail> {
    return this.http.json("POST", path("tasks", id, "resume"), { body });
  }

  /** Answer a step that waits for a person. */
  answer(id: string, step: string, value: unknown): Promise<T.TaskDetail> {
    return this.http.json("POST", path("tasks", id, "input", step), { body: { value }, repeatable: true });
  }

  board(id: string): Promise<T.BoardAnswer> {
    return this.http.json("GET", path("tasks", id, "board"), { repeatable: true });
  }

  write(id: string, key: string, body: T.WriteEntry): Promise<T.BoardEntryView> {
    return this.http.json("PUT", path("tasks", id, "board", key), { body, repeatable: body.if_version == null });
  }

  append(id: string, key: string, body: T.AppendItem, attempt: Attempt = {}): Promise<T.BoardEntryView> {
    return this.http.json("POST", path("tasks", id, "board", key, "append"), keyed(body, attempt));
  }

  /** What happens to a task until it ends; `after` is the id of the last event that was seen. */
  async *events(id: string, options: { after?: string; signal?: AbortSignal } = {}): AsyncGenerator<T.TaskEventView> {
    const headers: Record<string, string> = options.after === undefined ? {} : { "Last-Event-ID": options.after };
    const call: Call = { headers, repeatable: true, answers: true };
    if (options.signal !== undefined) call.signal = options.signal;
    for await (const { data } of this.http.events("GET", path("tasks", id, "events"), call)) {
      yield JSON.parse(data) as T.TaskEventView;
    }
  }
}

function message(words: Say, role: T.Role): T.NewMessage {
  return typeof words === "string" ? { role, text: words } : words;
}

/** A write that happens once: it is sent again under the same key. */
function keyed(body: unknown, attempt: Attempt): Call {
  return { ...attempt, body, idempotencyKey: attempt.idempotencyKey ?? crypto.randomUUID(), repeatable: true };
}

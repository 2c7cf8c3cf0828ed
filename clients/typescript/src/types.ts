// Written by generate_types.py out of the server's OpenAPI document; do not edit.

/** A task that has not ended. */
export interface ActiveTask {
  id: string;
  status: TaskStatus;
}

/** A memory to add. A later memory with the same `subject` replaces an earlier one. */
export interface AddMemory {
  text: string;
  kind?: MemoryKind;
  subject?: string;
}

/** Everything that an agent sees of a task: `history` are the newest messages of its session, `notes` and `messages` the agent's own (empty for a caller that is neither the agent nor an admin), and `prompt` a system prompt for its role. */
export interface AgentContextView {
  task_id: string;
  agent: string;
  goal: string;
  session_id: string | null;
  history: MessageView[];
  profile: Record<string, unknown>;
  board: BoardAnswer;
  notes: AgentNoteView[];
  messages: RunMessageView[];
  prompt: string;
}

/** What an agent is. */
export type AgentKind = "assistant" | "function" | "pydantic_ai";

/** All notes of one agent on one task, in order of their keys. */
export interface AgentNoteList {
  notes: AgentNoteView[];
}

/** A note of an agent. */
export interface AgentNoteView {
  key: string;
  value: unknown;
  written_at: string;
  expires_at: string;
  version: number;
}

/** The runs of a task, in the order of its plan. */
export interface AgentRunList {
  runs: AgentRunView[];
}

/** The work of an agent on one step, all attempts together. `output`, `messages` and the arguments of tool calls are for the agent alone, and empty for others. */
export interface AgentRunView {
  id: string;
  task_id: string;
  step: string;
  agent: string;
  kind: AgentKind;
  status: StepStatus;
  attempts: number;
  error: RunErrorView | null;
  output: unknown;
  requests: number;
  input_tokens: number;
  output_tokens: number;
  cost_usd: string;
  tool_calls: RunToolCallView[];
  messages: RunMessageView[];
  started_at: string | null;
  ended_at: string | null;
}

/** The form that an answer must have: JSON that fits a schema, or any JSON object. */
export interface AnswerSchema {
  name?: string;
  description?: string;
  schema?: Record<string, unknown> | null;
  strict?: boolean | null;
}

/** A person's answer to a step that waits for one. */
export interface AnswerStep {
  value: unknown;
}

/** An item for the end of a list; `agent` and `token` as in a write. */
export interface AppendItem {
  item: unknown;
  agent?: string | null;
  token?: number | null;
}

/** Messages to append, oldest first. Without `usage` the tokens that the messages name are what was spent. */
export interface AppendMessages {
  messages: NewMessage[];
  usage?: UsageBody | null;
  producer?: ProducerBody | null;
}

/** The outcome of a write; a `duplicate` stored nothing. `kept` of the messages are stored. Those before them were `dropped`: they exceed the most that a session keeps. */
export interface AppendResultView {
  session: SessionView;
  messages: MessageView[];
  duplicate: boolean;
  kept: number;
  dropped: number;
}

/** The assistants that the caller can talk to, and the models that may answer in place of theirs. */
export interface AssistantList {
  assistants: AssistantView[];
  models: string[];
}

/** An assistant, as a user chooses it. One with something `missing` answers 503 `extra_missing` or `assistant_missing`. */
export interface AssistantView {
  name: string;
  default: boolean;
  titles: Record<string, string>;
  description: Record<string, string>;
  model: string;
  personas: PersonaView[];
  tools: string[];
  missing: MissingView | null;
}

/** A picture, a sound or a file: by its content, as base64 in `data`; by a link in `url`, which is not fetched; by the `file_id` of a provider's file; or by the id of an `attachment` that the session has. */
export interface AttachmentBody {
  data?: string | null;
  url?: string | null;
  file_id?: string | null;
  attachment?: string | null;
  media_type?: string | null;
  name?: string | null;
  type?: "audio" | "file" | "image" | null;
  detail?: "auto" | "high" | "low" | "original" | null;
  provider?: string | null;
}

/** The attachments of a session, in the order in which they came. */
export interface AttachmentList {
  attachments: AttachmentView[];
}

/** What is known of an attachment; `seqs` are the messages that show it. */
export interface AttachmentView {
  id: string;
  media_type: string;
  size: number;
  name: string;
  seqs: number[];
}

/** One attribute's value; null removes it. */
export interface AttributeValue {
  value: unknown;
}

/** One attribute; null when there is none of this name. */
export interface AttributeView {
  name: string;
  value: unknown;
}

/** All attributes of a session. */
export interface AttributesView {
  attributes: Record<string, unknown>;
}

/** Begins a turn in the session that it names; without one, in a new session. */
export interface BeginAnyTurnBody {
  message?: NewMessage | null;
  messages?: NewMessage[];
  window?: number | null;
  session_id?: string | null;
  tenant_id?: string | null;
  site_id?: string | null;
}

/** Begins a turn: the text (none, to answer again) and the maximum number of messages to return. */
export interface BeginTurnBody {
  message?: NewMessage | null;
  messages?: NewMessage[];
  window?: number | null;
}

/** A whole board, in order of its keys, and its locks. */
export interface BoardAnswer {
  entries: BoardEntryView[];
  locks: HeldView[];
}

/** A write or deletion of a key, without its value. */
export interface BoardChangeView {
  key: string;
  version: number;
  writer: string;
  at: string;
  deleted: boolean;
}

/** The value of one key of a board; `previous_writer` is the last other agent that wrote it before. */
export interface BoardEntryView {
  key: string;
  value: unknown;
  writer: string;
  written_at: string;
  version: number;
  previous_writer: string | null;
}

/** The last twenty writes and deletions of a key, oldest first. */
export interface BoardHistory {
  changes: BoardChangeView[];
}

/** The `call` event: a tool of the caller that the model calls. */
export interface CallView {
  id: string;
  name: string;
  arguments: Record<string, unknown>;
}

/** Changes to a memory; fields that are left out keep their values. */
export interface ChangeMemory {
  text?: string | null;
  kind?: MemoryKind | null;
}

/** Changes to a session's head; fields that are left out keep their values. */
export interface ChangeSession {
  title?: string;
  status?: Status;
  window_start?: number;
  context?: Record<string, unknown>;
  attributes?: Record<string, unknown>;
  metadata?: Record<string, unknown>;
  if_version?: number | null;
}

/** The new status of a task; an end may have a result. With `if_version`, only if the task has that version. */
export interface ChangeTask {
  status: "completed" | "failed" | "running";
  result?: unknown;
  if_version?: number | null;
}

/** A message to an assistant, with `attachments` if it shows pictures, sounds or files. With `regenerate`, the last user message is answered again; it needs a `session_id` and no `message`. With `edit`, `message` replaces the user message of that sequence number, and later messages are deleted. Neither removes a message behind `after_seq`. `model` answers in place of the assistant's, if this installation allows it. `parameters` are for the model, and refused where it does not take them; with a `schema`, the answer has that form. */
export interface ChatBody {
  message?: string;
  attachments?: AttachmentBody[];
  require_attachments?: boolean;
  session_id?: string | null;
  assistant?: string | null;
  persona?: string | null;
  model?: string | null;
  stream?: boolean;
  regenerate?: boolean;
  edit?: number | null;
  after_seq?: number | null;
  language?: Language | null;
  profile?: Record<string, unknown>;
  parameters?: ModelParameters;
  schema?: AnswerSchema | null;
  reply_tokens?: number | null;
}

/** The result that a remote agent made of its step. */
export interface CompleteStep {
  output: unknown;
}

/** A condition on one value of the board, as written in a plan. */
export interface ConditionFields {
  key: string;
  operator?: Operator;
  value?: unknown;
}

/** A condition on one value of the board. */
export interface ConditionView {
  key: string;
  operator: Operator;
  value: unknown;
}

/** What the model saw: `total` of `prompt_limit` tokens, part by part. Its first `cacheable_tokens` begin the next turn's prompt as well, unless that is trimmed or compressed. */
export interface ContextView {
  total: number;
  cacheable_tokens: number;
  prompt_limit: number;
  budget: number;
  reply_tokens: number;
  encoding: string;
  exact: boolean;
  layout: LayoutName;
  entries: EntryView[];
}

/** A session to create. If the caller has a session of that `id`, it is returned. */
export interface CreateSession {
  id?: string | null;
  title?: string;
  context?: Record<string, unknown>;
  attributes?: Record<string, unknown>;
  metadata?: Record<string, unknown>;
  tenant_id?: string | null;
  site_id?: string | null;
}

/** The outcome for a candidate. */
export type Disposition = "cut" | "dropped" | "kept" | "summarised";

/** One part of a prompt and its outcome; `first` and `last` are sequence numbers of messages. `score` is that of the search for memories. `text` is there on request, from what is stored today; `state` says whether that is what the model saw (`stored`), has placeholders where it saw values (`redacted`), is `changed` or `gone` since, `unchecked` where this server has no key to tell, `unstored`, as the layout is, or `withheld`, as the assistant's prompt and tools are from users. `role` and `speaker`, a user or a persona, come with the text of a message that is stored. */
export interface EntryView {
  kind: Kind;
  disposition: Disposition;
  reason: Reason;
  tokens: number;
  uncut_tokens: number;
  id: string | null;
  first: number | null;
  last: number | null;
  count: number;
  score: number | null;
  text?: string | null;
  state?: PartState;
  role?: Role | null;
  speaker?: string | null;
}

/** What went wrong. Codes are stable; later versions may add some. */
export type ErrorCode = "agent_not_found" | "answer_invalid" | "api_key_not_found" | "assistant_failed" | "assistant_missing" | "assistant_not_found" | "attachment_limit" | "attachment_not_found" | "board_full" | "budget_exhausted" | "channel_unavailable" | "circuit_open" | "decryption_failed" | "delivery_refused" | "engine_unavailable" | "entry_not_found" | "extra_missing" | "forbidden" | "headers_too_large" | "host_not_allowed" | "idempotency_key_reused" | "identity_not_found" | "instructions_too_long" | "internal" | "invalid" | "invalid_credential" | "invalid_cursor" | "invalid_json" | "invalid_text" | "key_locked" | "key_protected" | "limit_reached" | "link_code_refused" | "lock_lost" | "memory_not_found" | "message_not_found" | "method_not_allowed" | "model_failed" | "model_key_refused" | "model_limited" | "model_not_found" | "model_refused" | "model_timeout" | "model_unknown" | "not_found" | "nothing_to_answer" | "person_full" | "placeholder_not_found" | "plan_invalid" | "private_data" | "prompt_too_long" | "queue_full" | "rate_limited" | "reply_refused" | "request_refused" | "request_timeout" | "scope_mismatch" | "search_off" | "sequence_gap" | "server_stopping" | "session_busy" | "session_exists" | "session_not_found" | "state_corrupt" | "step_lost" | "step_not_found" | "step_not_waiting" | "store_damaged" | "store_full" | "store_read_only" | "store_replaced" | "superseded" | "task_failed" | "task_finished" | "task_not_found" | "task_running" | "too_large" | "too_many_link_codes" | "too_many_private_values" | "trace_not_found" | "turn_interrupted" | "turn_lost" | "turn_not_found" | "turn_stopped" | "turn_unreachable" | "unavailable" | "unknown_attachment" | "unknown_tool_call" | "unsupported_attachment" | "unsupported_parameter" | "value_mismatch" | "version_conflict";

/** What happened. */
export type EventKind = "created" | "deleted" | "evicted" | "expired" | "hijack_refused" | "quarantined" | "updated";

/** Why a remote agent could not do its step: a code of its own, in small letters and underscores. `attempt` is `attempts` of the step as the agent read it: with it, the request can be repeated safely. */
export interface FailStep {
  code?: string;
  attempt?: number | null;
}

/** Why a model gave no answer, by what can be done about it. Decided once, where the provider's error is met. `unreachable`: no connection, or it broke off. `refused`: the key, a permission, the model's name, or the request as it is. `limit`: the provider's rate limit or quota. `too_slow`: the time limit passed. `content_filter`: the provider declined to answer. `other`: anything else, such as an error of the provider or an empty answer. */
export type FailureReason = "content_filter" | "limit" | "other" | "refused" | "too_slow" | "unreachable";

/** Why an answer ended. `stop`: the model was done. `length`: it was cut at its limit of tokens. `content_filter`: the provider withheld the rest. `refusal`: the model declined to answer, and says so. `tool_calls`: the caller's tools are to be run. */
export type FinishReason = "content_filter" | "length" | "refusal" | "stop" | "tool_calls";

/** A turn's end: the reply, tool calls and results included, what it cost, and what changes with it. */
export interface FinishTurnBody {
  message?: NewMessage | null;
  messages?: NewMessage[];
  usage?: UsageBody;
  changes?: TurnChanges | null;
}

/** How many memories were forgotten; in a `dry_run`, how many would be. */
export interface ForgetView {
  forgotten: number;
  dry_run: boolean;
}

/** The message at which a session was forked. */
export interface ForkPoint {
  session_id: string;
  seq: number;
}

/** Where to fork: everything up to and including message `at` is copied, or everything. */
export interface ForkSession {
  at?: number | null;
  id?: string | null;
  title?: string | null;
}

/** A locked key. The lock's token is for its holder alone. */
export interface HeldView {
  key: string;
  holder: string;
  expires_at: string;
}

/** What to add to a number; `agent` and `token` as in a write. */
export interface Increment {
  by?: number;
  agent?: string | null;
  token?: number | null;
}

/** What a part of a prompt is. `FRAME` is the layout's own: headings, roles, the start of the reply. `TOOLS` is the description of the tools. */
export type Kind = "chat_context" | "evidence" | "frame" | "memory" | "message" | "preferences" | "question" | "summary" | "system" | "tools";

/** The language of the prompt's own text; the conversation is not translated. */
export type Language = "en" | "zh";

/** How a prompt is laid out. `chat` gives each message its role and shows tools. The others write the history as lines of one text: `goods` under `=== 对话历史 ===` with a closing instruction, `question` under `历史对话:`, `marked` as a block that says it is context and no evidence. */
export type LayoutName = "chat" | "goods" | "marked" | "question";

/** A renewed lease. */
export interface LeaseView {
  turn_id: string;
  lease_until: string | null;
}

/** For how many seconds to lock a key, by default one minute; with its `token`, a lock is extended. */
export interface LockKey {
  seconds?: number | null;
  agent?: string | null;
  token?: number | null;
}

/** A lock that was taken; writes name its `token`, which is greater than that of any lock of the key before it. */
export interface LockView {
  key: string;
  holder: string;
  expires_at: string;
  token: number;
}

/** A message that a search found: its place in the session, the part of it around the words, and the words as they are written there. */
export interface MatchView {
  seq: number;
  role: Role;
  sent_at: string;
  excerpt: string;
  words: string[];
}

/** A memory that was found, its `score`, and what the score is made of. */
export interface MemoryHitView {
  memory: MemoryView;
  score: number;
  scores: MemoryScoresView;
}

/** What a search found, best first; `degraded` if some memories were ranked by words alone, or are `unread`. Then the embedder loads or does not answer, or it has not embedded all memories yet; or what was said last is not read for memories yet. */
export interface MemoryHits {
  hits: MemoryHitView[];
  degraded: boolean;
  unread: boolean;
}

/** A fact about the user, a preference that shapes answers, or an episode: what a conversation was about. */
export type MemoryKind = "episode" | "fact" | "preference";

/** Part of a listing; `cursor` continues it, null ends it. `unread` if what was said last is not read yet. */
export interface MemoryList {
  memories: MemoryView[];
  cursor: string | null;
  unread: boolean;
}

/** Why a memory was found: its score, `cosine`, the similarity to the query, `coverage`, the share of the query's weight that the shared `terms` hold, and `similarity`, the greatest one to a memory ranked above it. */
export interface MemoryScoresView {
  lexical: number;
  vector: number;
  session: number;
  period: number;
  speaker: number;
  cosine: number;
  coverage: number;
  similarity: number;
  terms: string[];
}

/** How a memory came about: quoted from a turn, extracted by a model, of a stale session, or written by hand. */
export type MemorySource = "model" | "quote" | "stale" | "written";

/** One memory. `session_id` and `seqs` are where it was said, by `speaker` (null: the owner). `superseded_by` is the later memory of the same subject, and `valid_until` is when it was replaced. `identity` is the user who said it, where several are one person: only this user can open the session. */
export interface MemoryView {
  id: string;
  kind: MemoryKind;
  text: string;
  subject: string | null;
  said_at: string;
  session_id: string | null;
  source: MemorySource;
  speaker: string | null;
  seqs: number[];
  persona: string | null;
  mentions: number;
  valid_until: string | null;
  superseded_by: string | null;
  expires_at: string | null;
  identity: string | null;
}

/** Messages, oldest first, whether there are more on either side, and the session's head where it is asked for. */
export interface MessageList {
  messages: MessageView[];
  more_before: boolean;
  more_after: boolean;
  session?: SessionView;
}

/** A stored message; unknown fields of its sender are at the same level. Those with the name of a field of tenuto are in `extra_fields`. `redacted` in its metadata counts the private values that placeholders replace, by type; `redacted_at` is there if they were removed after the message was stored. */
export interface MessageView {
  id: string;
  seq: number;
  role: Role;
  text: string;
  parts: Record<string, unknown>[];
  speaker: string | null;
  sent_at: string;
  turn: number;
  persona: string | null;
  parent: string | null;
  tokens: number;
  metadata: Record<string, unknown>;
  [field: string]: unknown;
}

/** Why an assistant takes no turns: the command that installs its package, or else its file cannot be loaded. Of a file, `cause` (file, line, what is wrong) and `advice` are for operators, and null for others. */
export interface MissingView {
  install: string | null;
  cause: string | null;
  advice: string | null;
}

/** How a model is to answer; `None` leaves it to the model. The names are those of the chat completions API. `prompt_cache_key` helps a provider to find the beginning of a prompt again, `safety_identifier` and `user` tell it users apart, `provider_metadata` and `provider_store` are for what it keeps of the answer. `prediction` is a text that much of the answer will repeat, `extra` has fields that the provider alone knows. */
export interface ModelParameters {
  temperature?: number | null;
  top_p?: number | null;
  top_k?: number | null;
  seed?: number | null;
  stop?: string[] | null;
  presence_penalty?: number | null;
  frequency_penalty?: number | null;
  logit_bias?: Record<string, number> | null;
  logprobs?: boolean | null;
  top_logprobs?: number | null;
  parallel_tool_calls?: boolean | null;
  reasoning_effort?: string | null;
  reasoning_summary?: string | null;
  verbosity?: string | null;
  service_tier?: string | null;
  prompt_cache_key?: string | null;
  safety_identifier?: string | null;
  user?: string | null;
  provider_metadata?: Record<string, string> | null;
  provider_store?: boolean | null;
  prediction?: Record<string, unknown> | null;
  extra?: Record<string, unknown>;
}

/** A message: a role and its text, as `text`, `content` (text or parts) or `parts`. Unknown fields are kept and returned unchanged. */
export interface NewMessage {
  role: Role;
  id?: string | null;
  text?: string | null;
  content?: string | Part[] | null;
  parts?: Part[] | null;
  speaker?: string | null;
  persona?: string | null;
  parent?: string | null;
  tokens?: number;
  sent_at?: string | null;
  metadata?: Record<string, unknown> | null;
  extra_fields?: Record<string, unknown>;
  [field: string]: unknown;
}

/** A task to open; `session_id` names the conversation that it comes from. With a `plan` it is run. */
export interface OpenTask {
  type: string;
  goal?: string;
  session_id?: string | null;
  plan?: PlanFields | null;
  tenant_id?: string | null;
  site_id?: string | null;
}

/** How a condition compares. An absent key is unequal to every value and fulfils no other comparison. */
export type Operator = "!=" | "<" | "<=" | "==" | ">" | ">=" | "absent" | "exists" | "in";

/** A part of a message: `text`, `tool_call`, `tool_result`, or another type, which is kept unchanged. */
export interface Part {
  type: string;
  [field: string]: unknown;
}

/** What is still known of a part of an earlier prompt. */
export type PartState = "changed" | "gone" | "redacted" | "stored" | "unchecked" | "unstored" | "withheld";

/** A character an assistant speaks as. */
export interface PersonaView {
  id: string;
  names: Record<string, string>;
}

/** A plan as submitted; `timeout` applies to the whole plan, in seconds. */
export interface PlanFields {
  steps: StepFields[];
  timeout?: number | null;
}

/** The current preferences, oldest first: memories of the kind `preference`. */
export interface PreferenceList {
  preferences: MemoryView[];
}

/** What went wrong: `code` is stable, `detail` is for people; some problems carry facts, such as `retry_after`, or the `reason` for which a model gave no answer. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  code: ErrorCode;
  detail: string;
}

/** A writer that numbers what it sends per session: 1, 2, 3 ... */
export interface ProducerBody {
  id: string;
  seq: number;
}

/** Why a part is in the prompt, or is not. */
export type Reason = "always" | "covered" | "empty" | "fits" | "irrelevant" | "message_cap" | "no_media" | "not_shown" | "orphan" | "other_persona" | "over_budget" | "partial" | "past" | "trimmed" | "window_characters" | "window_messages" | "window_turns";

/** The `reasoning` event: the next characters of what the model thinks, empty for a thought that is not shown. */
export interface ReasoningDeltaView {
  text: string;
}

/** An answer and how it was made. `degraded` names what was missing; `steps` are milliseconds. One that a user `stopped` has the text up to then. `finish` says why it ended: the model was done (`stop`), its limit of tokens came first (`length`), the provider withheld the rest (`content_filter`), the model declined to answer (`refusal`), or the caller's tools are to be run (`tool_calls`). `reasoning` is what the model thought before the answer, as far as its provider and the settings show it. `trace_id` is null if nothing of the turn is stored. */
export interface ReplyView {
  session_id: string;
  trace_id: string | null;
  turn: number;
  assistant: string;
  answer: string;
  reasoning: string;
  model: string;
  offline: boolean;
  degraded: string[];
  title: string;
  created: boolean;
  replayed: boolean;
  stopped: boolean;
  finish: FinishReason;
  usage: UsageView;
  data: Record<string, unknown>;
  context: ContextView | null;
  steps: Record<string, number>;
}

/** Where to resume: at this step and all that come after it; without one, at the failed steps. */
export interface ResumeTask {
  from_step?: string | null;
}

/** The role of a message. `ITEM` is an entry of another kind (a reasoning step, a compaction). */
export type Role = "assistant" | "item" | "system" | "tool" | "user";

/** Why the last attempt failed; `code` is stable. The message of `agent_failed` is as in a task. */
export interface RunErrorView {
  code: string;
  message: string;
}

/** A message between an agent and its model. */
export interface RunMessageView {
  role: string;
  text: string;
}

/** A call of a tool; `arguments` are for its agent alone. */
export interface RunToolCallView {
  name: string;
  ok: boolean;
  seconds: number;
  arguments: unknown;
}

/** The scope that a request acts in: that of its credential, with what its headers name. */
export interface ScopeView {
  tenant: string;
  site: string;
  user: string | null;
  channel: string | null;
  chat: string | null;
  thread: string | null;
}

/** What to look for. `since` and `until` bound when a memory was said; with `persona`, memories of other personas are left out; with `superseded`, what no longer holds is found as well. `mmr_lambda` weighs relevance against likeness to the hits above: 1 ranks by relevance alone, 0.3 prefers what is different. */
export interface SearchMemories {
  query: string;
  limit?: number;
  kinds?: MemoryKind[];
  since?: string | null;
  until?: string | null;
  session_id?: string | null;
  persona?: string | null;
  superseded?: boolean;
  mmr_lambda?: number;
}

/** The `session` event; `changed` is empty where it is not known what another process changed. */
export interface SessionChange {
  session_id: string;
  kind: EventKind;
  changed?: string[];
}

/** A session's head and its unfinished tasks, newest first, at most 20; null while the store does not answer. */
export interface SessionDetail {
  id: string;
  title: string;
  status: Status;
  turns: number;
  message_count: number;
  created_at: string;
  updated_at: string;
  tenant: string;
  site: string;
  user: string | null;
  channel: string | null;
  chat: string | null;
  thread: string | null;
  context: Record<string, unknown>;
  attributes: Record<string, unknown>;
  metadata: Record<string, unknown>;
  expires_at: string | null;
  version: number;
  last_seq: number;
  window_start: number;
  tokens: number;
  cost_usd: string;
  forked_from: ForkPoint | null;
  active_tasks: ActiveTask[] | null;
}

/** Part of a listing; `cursor` continues it, null ends it. A search adds `matches`: for each session by its id the best messages, the best one first; none where only the title was found. `unsearched` is how many sessions with new messages the search did not look into; ask again for those. */
export interface SessionList {
  sessions: SessionView[];
  cursor: string | null;
  matches?: Record<string, MatchView[]>;
  unsearched?: number;
}

/** A session's head. */
export interface SessionView {
  id: string;
  title: string;
  status: Status;
  turns: number;
  message_count: number;
  created_at: string;
  updated_at: string;
  tenant: string;
  site: string;
  user: string | null;
  channel: string | null;
  chat: string | null;
  thread: string | null;
  context: Record<string, unknown>;
  attributes: Record<string, unknown>;
  metadata: Record<string, unknown>;
  expires_at: string | null;
  version: number;
  last_seq: number;
  window_start: number;
  tokens: number;
  cost_usd: string;
  forked_from: ForkPoint | null;
}

/** The complete set of preferences: others are forgotten. */
export interface SetPreferences {
  preferences: string[];
}

/** One run of a step; `start` is in milliseconds since the turn began. A model call has its `usage`. */
export interface SpanView {
  name: string;
  start: number;
  milliseconds: number;
  usage: UsageView | null;
}

/** How much the caller has. */
export interface StatsView {
  sessions: number;
  messages: number;
  tokens: number;
  cost_usd: string;
}

/** The status of a conversation. */
export type Status = "active" | "archived" | "inactive";

/** The `step` event, at the beginning and at the end of each step of an assistant that works in steps. */
export interface StepEventView {
  id: string;
  state: "done" | "failed" | "started";
  titles: Record<string, string>;
  milliseconds?: number | null;
  error?: string | null;
}

/** A step as submitted: with an `agent`, or with `human_input`, a question to a person. Times are seconds. */
export interface StepFields {
  id: string;
  agent?: string | null;
  human_input?: string | null;
  output_key?: string;
  after?: string[];
  required?: boolean;
  timeout?: number | null;
  retries?: number;
  backoff?: number;
  when?: ConditionFields[] | ConditionFields | null;
  remote?: boolean;
}

/** The status of a step. `waiting` is a human-input or remote step that was not ended yet. */
export type StepStatus = "completed" | "failed" | "pending" | "running" | "skipped" | "waiting";

/** A step of a task's plan, and its state so far. `timeout` and `backoff` are seconds; a step without a `timeout` has that of the installation. */
export interface StepView {
  id: string;
  agent: string | null;
  human_input: string | null;
  output_key: string;
  after: string[];
  required: boolean;
  remote: boolean;
  when: ConditionView[];
  timeout: number | null;
  retries: number;
  backoff: number;
  status: StepStatus;
  attempts: number;
  error: TaskErrorView | null;
  started_at: string | null;
  ended_at: string | null;
}

/** Whether the session's last turn was stopped, how it ended otherwise, and the answer that this request ended. */
export interface StopView {
  stopped: boolean;
  outcome: TraceOutcome | null;
  reply: ReplyView | null;
}

/** A task and the steps of its plan, in the order of the plan; without a plan there are none. `timeout` is that of the plan, in seconds. */
export interface TaskDetail {
  id: string;
  session_id: string | null;
  type: string;
  goal: string;
  status: TaskStatus;
  version: number;
  result: unknown;
  error: TaskErrorView | null;
  runs: number;
  created_at: string;
  updated_at: string;
  started_at: string | null;
  deadline_at: string | null;
  completed_at: string | null;
  expires_at: string;
  timeout: number | null;
  steps: StepView[];
}

/** Why a task or a step failed: a stable code, a sentence, and the step at fault. The sentence of `agent_failed` is what the agent raised, and empty for a credential that is bound to a user, unless its role is admin. */
export interface TaskErrorView {
  code: string;
  message: string;
  step: string | null;
}

/** The type of an event; of events at the same instant, those of an earlier type come first. */
export type TaskEventType = "board.changed" | "step.finished" | "step.started" | "step.waiting" | "task.finished" | "task.opened" | "task.started";

/** Something that happened to a task. `agent` is that of the step, or the writer of the board's `key`; `status` is that of what has ended, or `written` or `deleted`. */
export interface TaskEventView {
  id: string;
  type: TaskEventType;
  at: string;
  step: string | null;
  agent: string | null;
  key: string | null;
  version: number | null;
  status: string | null;
  attempts: number | null;
  run: number | null;
  error_code: string | null;
}

/** Part of a listing; `cursor` continues it, null ends it. */
export interface TaskList {
  tasks: TaskView[];
  cursor: string | null;
}

/** The status of a task; `completed` and `failed` are final. */
export type TaskStatus = "completed" | "failed" | "pending" | "running";

/** A task without its board. `runs` counts the runs of its plan, the last of which ends at `deadline_at`. */
export interface TaskView {
  id: string;
  session_id: string | null;
  type: string;
  goal: string;
  status: TaskStatus;
  version: number;
  result: unknown;
  error: TaskErrorView | null;
  runs: number;
  created_at: string;
  updated_at: string;
  started_at: string | null;
  deadline_at: string | null;
  completed_at: string | null;
  expires_at: string;
}

/** The `delta` event: the next characters of the answer. */
export interface TextDeltaView {
  text: string;
}

/** What happened to a task, in order of time. */
export interface Timeline {
  events: TaskEventView[];
}

/** The `tool` event, at the start and at the end of each call. */
export interface ToolEventView {
  name: string;
  state: "done" | "failed" | "started";
  milliseconds?: number;
  error?: string | null;
}

/** One call of a tool; `start` is in milliseconds since the turn began, null in older traces. `exception` is what a tool raised that failed. Of an output that was cut the model saw `tokens` of `uncut_tokens`; else both are 0. */
export interface ToolRunView {
  name: string;
  arguments: Record<string, unknown>;
  output: unknown;
  milliseconds: number;
  error: string | null;
  start: number | null;
  exception: string;
  tokens: number;
  uncut_tokens: number;
}

/** Traces, newest first; `truncated` says that there may be older ones: more than the `limit`, or beyond the 200 sessions and about 1,000 turns that are looked through without a `session_id`. */
export interface TraceList {
  traces: TraceView[];
  truncated: boolean;
}

/** How a turn ended: with an answer, with one that had to do without something, stopped by a user, or failed. */
export type TraceOutcome = "answered" | "degraded" | "failed" | "stopped";

/** Everything about one turn; `error` is the code of what ended it without an answer, `error_message` the same in words, `reason` why the model failed where it did, `stopped` whether a user ended it. Of an answer of a fallback model, `error_message` and `reason` say why the first one did not answer. `speaker` is the user. `finish` says why the answer ended, `parameters` are those that the model got, and `dropped_reasoning` counts thoughts that it was not sent, since another provider made them, `dropped_items` the same of what tools of a provider did. `steps` are milliseconds by name, `spans` the single runs of each step, in order; older traces have none. `redacted` counts the private values that were taken out of its texts, by type. A brief listing leaves out `tools`, `spans`, `data` and `context`. */
export interface TraceView {
  trace_id: string;
  session_id: string;
  turn: number;
  began_at: string;
  assistant: string;
  persona: string | null;
  user: string | null;
  request: string;
  answer: string;
  model: string;
  offline: boolean;
  degraded: string[];
  error: string | null;
  error_message: string;
  reason: FailureReason | null;
  stopped: boolean;
  finish: FinishReason;
  parameters: Record<string, unknown>;
  dropped_reasoning: number;
  dropped_items: number;
  app: string;
  app_task: string;
  store_overridden: boolean;
  usage: UsageView;
  steps: Record<string, number>;
  redacted: Record<string, number>;
  tools?: ToolRunView[];
  spans?: SpanView[];
  data?: Record<string, unknown>;
  context?: ContextView | null;
}

/** Delete the messages after this sequence number, except those of `keep_seqs`; with `if_version`, if nothing has changed since. */
export interface TruncateSession {
  after: number;
  if_version?: number | null;
  keep_seqs?: number[];
}

/** The `turn` event: an answer is being made that `GET /v1/sessions/{id}/stream` joins. */
export interface TurnBegun {
  session_id: string;
  turn: number;
  trace_id: string;
}

/** Changes to a session's head at the end of a turn; fields that are left out keep their values. */
export interface TurnChanges {
  title?: string;
  status?: Status;
  window_start?: number;
  context?: Record<string, unknown>;
  attributes?: Record<string, unknown>;
  metadata?: Record<string, unknown>;
}

/** The `start` event; `trace_id` is null if nothing of the turn is stored. */
export interface TurnStartedView {
  session_id: string;
  trace_id: string | null;
  turn: number;
  created: boolean;
}

/** The state of a turn when it was requested: begun now, begun before and unfinished, or finished before. */
export type TurnState = "finished" | "opened" | "resumed";

/** A turn that has begun. In state `finished` this key was answered before, and `reply` is the answer. `cut` are the ids of messages of which the window holds a part, because they are too long for it. */
export interface TurnView {
  turn_id: string;
  lease_until: string | null;
  number: number;
  state: TurnState;
  created: boolean;
  session: SessionView;
  user_messages: MessageView[];
  summary: string;
  window: MessageView[];
  cut: string[];
  reply: MessageView[];
}

/** What something cost. `cost_usd` is exact to a billionth; as a string it stays exact in transit. */
export interface UsageBody {
  tokens?: number;
  cost_usd?: string | number;
}

/** What a turn or a model call cost. Of the input, `cached_tokens` were in the provider's cache and `cache_write_tokens` are now; of the output, `reasoning_tokens` were thought and not said. */
export interface UsageView {
  input_tokens: number;
  output_tokens: number;
  cached_tokens: number;
  cache_write_tokens: number;
  reasoning_tokens: number;
  cost_usd: string;
}

/** The new value of a key of a board. `agent` may be named by the header Tenuto-Agent instead; `token` is that of the agent's lock, and an `if_version` of 0 requires that the key has no value yet. */
export interface WriteEntry {
  value: unknown;
  agent?: string | null;
  token?: number | null;
  if_version?: number | null;
}

/** A private note of an agent; an `if_version` of 0 requires that it does not exist yet. */
export interface WriteNote {
  value: unknown;
  if_version?: number | null;
}

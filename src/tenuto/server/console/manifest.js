/** What the model saw, as shares of the budget: pure arithmetic over a manifest. */

// In the order of a prompt. `free` is room that no part needed, `reply` is kept for the answer, and `margin` stands for a
// tokenizer that is not here; with them the shares add up to the budget.
const KINDS = ["system", "preferences", "summary", "memory", "evidence", "chat_context", "message", "question", "tools", "frame"];

/** `[{ kind, tokens }]` of the whole budget, parts of nothing left out. */
export function shares(context) {
  return [...used(context), ...rest(context)].filter((share) => share.tokens > 0);
}

/** The same of what is in the prompt alone. */
export function used(context) {
  const known = KINDS.map((kind) => ({ kind, tokens: sum(context.entries.filter((entry) => entry.kind === kind)) }));
  return known.filter((share) => share.tokens > 0);
}

function rest(context) {
  const { total, prompt_limit: limit, budget, reply_tokens: reply } = context;
  return [
    { kind: "free", tokens: Math.max(0, limit - total) },
    { kind: "margin", tokens: Math.max(0, budget - reply - Math.max(limit, total)) },
    { kind: "reply", tokens: reply },
  ];
}

function sum(entries) {
  return entries.reduce((all, entry) => all + entry.tokens, 0);
}

/** Which messages an entry stands for: `#3`, `#3–#12`, or nothing. */
export function range(entry) {
  if (entry.first == null) return "";
  return entry.first === entry.last ? `#${entry.first}` : `#${entry.first}–#${entry.last}`;
}

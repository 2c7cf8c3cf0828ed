/** The server at a glance: how it is in one word, what to do where it is not well, and the numbers behind. */

import { fill, h, set, write } from "../dom.js";
import { bytes, instant, lasting, milliseconds, moment, number } from "../format.js";
import { has, t } from "../i18n.js";
import { pageHeader } from "./page_header.js";
import { refusal } from "./refusal.js";

export function healthView(actions) {
  const header = pageHeader(actions, t("page.health"), t("health.lead"));
  const notice = h("p", { class: "notice", role: "status" });
  const word = h("p", { class: "level", role: "status" });
  const findings = h("ul", { class: "findings" });
  const cards = h("div", { class: "health-cards" });
  const since = h("p", { class: "hint" });
  const node = h(
    "div",
    { class: "page health" },
    header.node,
    // Nothing in it takes the focus, and a keyboard has to scroll it.
    h("div", { class: "scroll", tabindex: 0 }, h("div", { class: "column" }, notice, word, findings, cards, since)),
  );
  let last = null;

  function draw(state, now) {
    header.draw(state);
    if (now === last) return;
    last = now;
    const { status, before, loading, problem } = now;
    fill(notice, problem ? refusal(problem, "health.role", actions, "operator") : loading && t("app.loading"));
    set(notice, "hidden", !problem && !loading);
    for (const part of [word, findings, cards, since]) set(part, "hidden", !status || Boolean(problem));
    if (!status || problem) return;
    const level = status.level === "ok" && isUncalled(status) ? "uncalled" : status.level;
    set(word, "data-level", level);
    write(word, t(`health.level.${level}`));
    fill(findings, status.findings.map((each) => finding(each, status)));
    set(findings, "hidden", status.findings.length === 0);
    fill(cards, allCards(status, before));
    const { process } = status;
    write(since, t("health.since", { moment: instant(process.started_at), version: process.version }));
  }

  return { node, draw, focus: header.focus, title: () => t("page.health") };
}

/** Whether there are models of providers, none of which was asked anything: whether they answer is not known. */
function isUncalled({ models = [] }) {
  return models.length > 0 && models.every(({ answered, failed }) => answered + failed === 0);
}

/** In the reader's language where the page knows the code, else as the server says it. */
function finding({ code, level, message, advice, subject = null }, { models = [] }) {
  const known = has(`health.finding.${code}`);
  // The code of a model's finding is its reason; that of the failure itself may say more.
  const model = models.find(({ name }) => name === subject);
  const cause = model?.last_failure?.code;
  const { address = null, address_variable: variable = null } = model ?? {};
  const todo = code === "model_unreachable" && address && variable ? "model_unreachable.at" : code;
  const phrase = code === "model_refused" && has(`health.finding.${cause}`) ? cause : code;
  return h(
    "li",
    { data: { level, code } },
    h("b", {}, known ? t(`health.finding.${phrase}`, { subject }) : coded(message)),
    h("p", {}, coded(known ? t(`health.do.${todo}`, { advice, address, variable }) : advice)),
  );
}

/** A text whose parts between backticks are code. */
function coded(text) {
  return text.split("`").map((part, place) => (place % 2 ? h("code", {}, part) : part));
}

function allCards(status, before) {
  return [
    storeCard(status.store),
    status.breaker && breakerCard(status.breaker),
    status.journal && journalCard(status.journal),
    status.cache && cacheCard(status.cache),
    turnsCard(status, before),
    ...(status.models ?? []).map(modelCard),
    sessionsCard(status, before),
    jobsCard(status.jobs),
    tasksCard(status.tasks),
    processCard(status.process),
  ];
}

function storeCard({ backend, address, answers, ping_ms, version }) {
  return card("store", answers ? "ok" : "error", answers ? "answers" : "silent", [
    ["backend", version ?? backend],
    ["address", address],
    ping_ms !== null && ["ping", milliseconds(ping_ms)],
  ]);
}

function breakerCard({ state, rejected }) {
  return card("breaker", state === "closed" ? "ok" : "warning", state, [["rejected", number(rejected)]]);
}

function journalCard({ waiting, oldest_seconds, quarantined, replayed, refused, since }) {
  const level = quarantined ? "error" : waiting ? "warning" : "ok";
  return card("journal", level, quarantined ? "quarantined" : waiting ? "waiting" : "empty", [
    ["waiting", number(waiting)],
    oldest_seconds !== null && ["oldest", lasting(oldest_seconds * 1000)],
    ["quarantined", number(quarantined)],
    ["replayed", number(replayed)],
    since !== null && ["away_since", moment(since)],
    refused > 0 && ["refused", number(refused)],
  ]);
}

function cacheCard({ sessions, max_sessions, bytes: size, max_bytes, hit_rate }) {
  return card("cache", "ok", null, [
    ["hit_rate", hit_rate === null ? t("health.none") : `${number(100 * hit_rate, 1)} %`],
    ["cached", t("health.of", { some: number(sessions), all: number(max_sessions) })],
    ["bytes", t("health.of", { some: bytes(size), all: bytes(max_bytes) })],
  ]);
}

function turnsCard({ turns, process }, before) {
  const ended = turns.answered + turns.failed;
  const then = before && before.turns.answered + before.turns.failed;
  return card("turns", turns.failed_in_a_row >= 3 ? "warning" : "ok", null, [
    ["live", number(turns.live)],
    ["rate", perMinute(process, before, ended, then)],
    ["per_minute", number(turns.per_minute, 2)],
    ["answered", number(turns.answered)],
    ["failed", number(turns.failed)],
  ]);
}

/** The calls of one model. It is told by name, as there may be several. */
function modelCard(model) {
  const { name, answered, failed, failed_in_a_row: now, failure_rate: rate, last_failure: failure } = model;
  const unused = answered + failed === 0;
  const level = unused ? "uncalled" : now >= 3 ? "error" : now > 0 || rate >= 0.5 ? "warning" : "ok";
  const word = unused ? "unused" : now > 0 ? "fails" : "answers";
  const facts = [
    ["model", name],
    model.address && ["address", model.address],
    ["last_answer", model.last_answer_at ? moment(model.last_answer_at) : t("health.none")],
    ["last_failure", failure ? moment(failure.at) : t("health.none")],
    failure && ["reason", t(`failure.${failure.reason}`)],
    ["latency", model.p50_ms === null ? t("health.none") : latency(model)],
    ["failed", t("health.of", { some: number(failed), all: number(answered + failed) })],
    rate !== null && ["failure_rate", `${number(100 * rate, 0)} %`],
  ];
  return card("model", level, word, facts, failure && h("small", { class: "cause", lang: "en" }, failure.message));
}

function latency({ p50_ms, p95_ms }) {
  return t("health.latency", { p50: milliseconds(p50_ms), p95: milliseconds(p95_ms) });
}

function sessionsCard({ sessions, process }, before) {
  return card("sessions", "ok", null, [
    ["rate", perMinute(process, before, sessions.created, before?.sessions.created)],
    ["created", number(sessions.created)],
    ["deleted", number(sessions.deleted)],
    ["expired", number(sessions.expired)],
  ]);
}

/** What was added since the last reading, by the minute; a server that was started anew in between counts from 0. */
function perMinute(process, before, now, then) {
  const seconds = before ? process.uptime_seconds - before.process.uptime_seconds : 0;
  return seconds > 0 ? number((60 * (now - then)) / seconds, 1) : t("health.none");
}

function jobsCard({ waiting, running, done, failed, failed_in_a_row, unread }) {
  return card("jobs", failed_in_a_row >= 5 || waiting >= 100 ? "warning" : "ok", null, [
    ["jobs_waiting", number(waiting)],
    ["statements_unread", number(unread)],
    ["running", number(running)],
    ["done", number(done)],
    ["failed", number(failed)],
  ]);
}

function tasksCard({ status, error }) {
  return card("tasks", status === "unavailable" ? "error" : "ok", status, [error !== null && ["error", error]]);
}

function processCard({ uptime_seconds, cpu_seconds, memory_bytes, workers }) {
  return card("process", "ok", null, [
    ["uptime", lasting(uptime_seconds * 1000)],
    ["memory", memory_bytes === null ? t("health.none") : bytes(memory_bytes)],
    ["cpu", lasting(cpu_seconds * 1000)],
    ...(workers > 1 ? [["workers", number(workers)]] : []),
  ]);
}

function card(name, level, word, facts, below = null) {
  return h(
    "section",
    { class: "health-card", data: { card: name, level } },
    h("h2", {}, t(`health.card.${name}`), word && h("span", { class: "state" }, t(`health.${name}.${word}`))),
    h("dl", {}, facts.filter(Boolean).map(row)),
    below,
  );
}

function row([fact, value]) {
  return h("div", {}, h("dt", {}, t(`health.fact.${fact}`)), h("dd", { data: { fact } }, value));
}

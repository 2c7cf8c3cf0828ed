/** Scan what is stored, erase a user, verify a receipt, read the audit. */

import { api, json, request } from "../api.js";
import { bytes } from "../me.js";
import { Problem } from "../problem.js";
import { eventsOf } from "../sse.js";
import { partOf } from "../state.js";
import { guardedRequests } from "./guarded.js";
import { refused } from "./house.js";

const AUDIT_PAGE = 1000;

export function privacyActions(store, own) {
  const [scan, erasure, check, audit] = ["scan", "erasure", "check", "audit"].map((name) => partOf(own, name));
  const { guarded, leave } = guardedRequests(store, audit.patch);
  const policy = guardedRequests(store, () => {});
  let stopping = null; // ends the scan that runs

  /** The newest come last, so that all pages are read. */
  async function allEntries() {
    const entries = [];
    let cursor = null;
    do {
      const asked = new URLSearchParams({ limit: AUDIT_PAGE, ...(cursor && { cursor }) });
      const page = await json("GET", `v1/privacy/audit?${asked}`);
      entries.push(...page.entries);
      cursor = page.cursor;
    } while (cursor !== null);
    return entries.reverse();
  }

  function refresh() {
    return guarded(allEntries, (entries) => audit.patch({ entries, loading: false, problem: null }));
  }

  /** The policy stays as it was told last where it does not come. */
  function open() {
    policy.guarded(api.privacy, (privacy) => store.change({ privacy }));
    return refresh();
  }

  async function begin(fix) {
    const stop = (stopping = new AbortController());
    const told = (change) => stop === stopping && scan.patch(change);
    told({ running: true, done: 0, total: 0, report: null, problem: null });
    try {
      const response = await request("POST", "v1/privacy/scan", { fix, stream: true }, { signal: stop.signal });
      for await (const [name, event] of eventsOf(response.body)) {
        if (name === "error") throw Problem.told(event);
        told(name === "report" ? { report: event } : event);
      }
    } catch (error) {
      if (!stop.signal.aborted) told({ problem: failure(error) });
    }
    told({ running: false });
    if (fix && stop === stopping) await refresh();
  }

  function stop() {
    stopping?.abort();
  }

  async function erase(user) {
    erasure.patch({ busy: true, receipt: null, problem: null });
    try {
      // The page may act for another user; the request names the one who is erased.
      const headers = { "X-User-ID": bytes(user) };
      const response = await request("DELETE", `v1/users/${encodeURIComponent(user)}`, undefined, { headers });
      erasure.patch({ receipt: await response.json() });
      await refresh();
    } catch (error) {
      erasure.patch({ problem: failure(error) });
    }
    erasure.patch({ busy: false });
  }

  async function verify(text, user) {
    check.patch({ result: null, problem: null });
    try {
      const body = { receipt: parsed(text), ...(user && { user_id: user }) };
      check.patch({ result: await json("POST", "v1/privacy/verify", body) });
    } catch (error) {
      check.patch({ problem: failure(error) });
    }
  }

  function failure(error) {
    const problem = Problem.from(error);
    refused(store, problem);
    return problem;
  }

  return {
    open,
    scan: begin,
    stop,
    erase,
    verify,
    leave() {
      stop();
      stopping = null;
      policy.leave();
      leave();
    },
  };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Problem("receipt_unreadable");
  }
}

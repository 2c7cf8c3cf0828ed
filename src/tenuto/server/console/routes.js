/** The page of routes: sends what one tries, and shows what comes back. Nothing that is shown becomes markup. */

import { paint } from "./theme.js";

const LONGEST = 20_000; // characters of an answer that are shown

paint();
for (const form of document.querySelectorAll("form")) {
  form.hidden = false;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (form.matches(".try")) send(form);
  });
}
addEventListener("hashchange", unfold);
unfold();

/** What the address names is open. */
function unfold() {
  const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!named?.matches("details")) return;
  named.open = true;
  named.scrollIntoView();
}

async function send(form) {
  const { method, path } = form.closest(".route").dataset;
  const { key, user } = Object.fromEntries(new FormData(document.querySelector(".caller")));
  const body = form.elements.body?.value.trim();
  const headers = {
    ...(key && { Authorization: `Bearer ${key}` }),
    ...(user && { "X-User-ID": String.fromCharCode(...new TextEncoder().encode(user)) }),
    ...(body && { "Content-Type": "application/json" }),
  };
  const shown = form.querySelector("output");
  shown.textContent = "…";
  shown.tabIndex = 0; // a keyboard scrolls it
  try {
    const response = await fetch(addressOf(path, form), { method, headers, body: body || undefined });
    await show(shown, response);
  } catch (error) {
    shown.textContent = String(error);
  }
}

/** The path with its parts filled in, and the query. Addresses are relative, so a proxy may have a path of its own. */
function addressOf(path, form) {
  const fields = [...form.querySelectorAll("[data-in]")].filter((field) => field.value !== "");
  const query = new URLSearchParams();
  let filled = path.slice(1);
  for (const { name, value, dataset } of fields) {
    if (dataset.in === "query") query.set(name, value);
    else filled = filled.replace(`{${name}}`, encodeURIComponent(value));
  }
  return query.size ? `${filled}?${query}` : filled;
}

/** The status, then the answer as it comes: a stream may never end. */
async function show(shown, response) {
  let text = "";
  const status = `${response.status} ${response.statusText}\n`;
  shown.textContent = status;
  for await (const part of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    text += part;
    shown.textContent = status + text.slice(0, LONGEST);
    if (text.length > LONGEST) return;
  }
  if (response.headers.get("Content-Type")?.includes("json")) shown.textContent = status + indented(text).slice(0, LONGEST);
}

function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

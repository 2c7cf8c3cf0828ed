/** The page of routes: sends what one tries, and shows what comes back. Nothing that is shown becomes markup. */

import { currentLanguage } from "./i18n.js";
import { paint } from "./theme.js";

const LONGEST = 20_000; // characters of an answer that are shown
// The page's own words. What the API says of itself stays as it is.
const ZH = {
  Routes: "接口",
  "Any OpenAPI tool reads": "任何 OpenAPI 工具都可读取",
  ", which this page is made of.": "，本页即由它生成。",
  "No API key is needed: requests from this machine are accepted, as tenant": "无需 API 密钥：来自本机的请求都会被接受，未指定租户时归入",
  "unless they name another. The first": "。运行一次",
  "ends that. Begin a conversation, then see it again, also after a restart:":
    "之后就需要密钥。先开始一段对话，再查看它，重启之后也还在：",
  "Requests need an API key or a token. Begin a conversation, then see it again, also after a restart:":
    "请求需要 API 密钥或令牌。先开始一段对话，再查看它，重启之后也还在：",
  "In a browser:": "在浏览器中：",
  "the console": "控制台",
  ". For operators:": "。供运维使用：",
  health: "健康检查",
  readiness: "就绪检查",
  metrics: "指标",
  "API key": "API 密钥",
  User: "用户",
  Parameters: "参数",
  Body: "请求体",
  Answers: "响应",
  Fields: "字段",
  Send: "发送",
};

paint();
if (currentLanguage() === "zh") translate();
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

function translate() {
  for (const one of document.querySelectorAll("h1, h3, .lead, .first, .first a, .caller label, .try label, .try button"))
    for (const text of one.childNodes) {
      const phrase = text.nodeType === Node.TEXT_NODE && ZH[text.data.trim().replace(/\s+/g, " ")];
      if (!phrase) continue;
      text.data = text.data.replace(text.data.trim(), phrase);
      one.lang = "zh-Hans";
    }
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

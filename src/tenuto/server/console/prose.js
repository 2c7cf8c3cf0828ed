/**
 * Answers as paragraphs, lists, code and emphasis. Models write a little Markdown; what is not one of these few forms
 * stays the text it is. Everything is built node by node.
 */

import { h } from "./dom.js";
import { marked } from "./views/marks.js";

const FENCE = /^```/;
const HEADING = /^#{1,6}\s+(.*)$/;
const BULLET = /^\s*[-*•]\s+(.*)$/;
const NUMBERED = /^\s*(\d{1,4})[.)、]\s+(.*)$/;
const INLINE = /(`[^`\n]+`|\*\*[^*\n]+\*\*)/;

export function prose(text) {
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    const [block, next] = blockAt(lines, at);
    if (block) blocks.push(block);
    at = next;
  }
  return blocks;
}

function blockAt(lines, at) {
  if (!lines[at].trim()) return [null, at + 1];
  if (FENCE.test(lines[at])) return code(lines, at + 1);
  const heading = HEADING.exec(lines[at]);
  // Not a real heading: those of the page would no longer be a sound outline.
  if (heading) return [h("p", { class: "heading" }, inline(heading[1])), at + 1];
  if (BULLET.test(lines[at])) return list(lines, at, BULLET, "ul");
  if (NUMBERED.test(lines[at])) return list(lines, at, NUMBERED, "ol");
  return paragraph(lines, at);
}

function code(lines, at) {
  const end = lines.findIndex((line, place) => place >= at && FENCE.test(line));
  const stop = end === -1 ? lines.length : end; // still being written
  return [h("pre", { tabindex: 0 }, h("code", {}, marked(lines.slice(at, stop).join("\n")))), stop + 1];
}

function list(lines, at, form, tag) {
  const items = [];
  const first = form.exec(lines[at])[1];
  let next = at;
  for (; next < lines.length && form.test(lines[next]); next += 1) {
    items.push(h("li", {}, inline(form.exec(lines[next]).at(-1))));
  }
  return [h(tag, tag === "ol" && first !== "1" ? { start: first } : {}, items), next];
}

function paragraph(lines, at) {
  const said = [];
  let next = at;
  for (; next < lines.length && lines[next].trim(); next += 1) {
    if (next > at && [FENCE, HEADING, BULLET, NUMBERED].some((form) => form.test(lines[next]))) break;
    if (next > at) said.push(h("br"));
    said.push(...inline(lines[next]));
  }
  return [h("p", {}, said), next];
}

function inline(line) {
  return line
    .split(INLINE)
    .filter(Boolean)
    .map((part) => {
      if (stands(part, "`")) return h("code", {}, marked(part.slice(1, -1)));
      if (stands(part, "**")) return h("strong", {}, marked(part.slice(2, -2)));
      return marked(part);
    });
}

/** Whether something stands between two of these signs. */
function stands(part, sign) {
  return part.length > 2 * sign.length && part.startsWith(sign) && part.endsWith(sign);
}

/**
 * Markdown as nodes. `marked` parses a text into tokens, and each token becomes an element here: no string of markup
 * ever exists, and HTML in a text stays text. Links lead to the web or to a mailbox, and show where.
 */

import { h } from "./dom.js";
import { t } from "./i18n.js";
import { pieces } from "./marks.js";
import { Lexer } from "./vendor/marked/marked.esm.js";
import { codeBlock } from "./views/code_block.js";
import { chip } from "./views/marks.js";

// Longer texts, and longer lines of text, are not worth the time that an adversary could make them take.
const MOST = 50_000;
const MOST_INLINE = 4_000;
const DEEPEST_BLOCK = 12;
const DEEPEST = 24;
const PROTOCOLS = ["http:", "https:", "mailto:"];
// What stands for a placeholder while the text is parsed: no Markdown has a meaning for it.
const STAND_IN = /\uE000(\d+)\uE001/;

class BoundedLexer extends Lexer {
  nesting = 0;

  blockTokens(...given) {
    if (this.nesting === DEEPEST_BLOCK) throw new RangeError("nested too deeply");
    this.nesting += 1;
    const tokens = super.blockTokens(...given);
    this.nesting -= 1;
    return tokens;
  }

  inlineTokens(text, tokens = []) {
    if (text.length <= MOST_INLINE) return super.inlineTokens(text, tokens);
    tokens.push({ type: "text", raw: text, text });
    return tokens;
  }
}

/** The text as nodes; nothing where it is too long, or nested too deeply to be parsed. */
export function markdown(text) {
  if (text.length > MOST) return null;
  const marks = [];
  const hidden = pieces(text).map((piece) =>
    typeof piece === "string" ? piece : `\uE000${marks.push(piece) - 1}\uE001`,
  );
  try {
    const tokens = new BoundedLexer({ gfm: true, breaks: true }).lex(hidden.join(""));
    return blocks(tokens, { marks, depth: 0 }).map(directed);
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
}

function blocks(tokens, at) {
  return tokens.map((token) => (BLOCKS[token.type] ?? inlineBlock)(token, { ...at, depth: at.depth + 1 }));
}

/** A block as its own letters run; what is inside follows it, except code, which always runs from the left. */
function directed(block) {
  if (block instanceof HTMLElement) block.dir = block.matches(".code") ? "ltr" : "auto";
  return block;
}

const BLOCKS = {
  space: () => null,
  def: () => null,
  hr: () => h("hr"),
  html: ({ raw }, at) => h("p", { class: "plain" }, words(raw.trim(), at)),
  // Not a real heading: those of the page would no longer be a sound outline.
  heading: ({ tokens, depth }, at) => h("p", { class: "heading", data: { level: depth } }, inline(tokens, at)),
  paragraph: ({ tokens }, at) => h("p", {}, inline(tokens, at)),
  blockquote: ({ tokens }, at) => h("blockquote", {}, blocks(tokens, at)),
  code: ({ text, lang }, at) => codeBlock(text, lang, (part) => words(part, at), plain(text, at)),
  list,
  table,
};

/** A text in a list without space between its items, or something that has no block of its own. */
function inlineBlock(token, at) {
  return inline(token.tokens ?? [token], at);
}

function list({ ordered, start, items }, at) {
  const attributes = ordered && start !== 1 && Number.isInteger(start) ? { start: String(start) } : {};
  return h(
    ordered ? "ol" : "ul",
    attributes,
    items.map((item) => h("li", {}, blocks(item.tokens, at))),
  );
}

function table({ header, rows, align }, at) {
  const cell = (tag) => (each, place) =>
    h(tag, { data: { align: align[place] }, scope: tag === "th" ? "col" : null }, inline(each.tokens, at));
  return h(
    "div",
    { class: "table", tabindex: 0, role: "group", "aria-label": t("talk.table") },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, header.map(cell("th")))),
      h(
        "tbody",
        {},
        rows.map((row) => h("tr", {}, row.map(cell("td")))),
      ),
    ),
  );
}

function inline(tokens, at) {
  if (at.depth > DEEPEST) return tokens.map((token) => words(token.raw, at));
  return tokens.map((token) => (INLINE[token.type] ?? said)(token, { ...at, depth: at.depth + 1 }));
}

const INLINE = {
  strong: ({ tokens }, at) => h("strong", {}, inline(tokens, at)),
  em: ({ tokens }, at) => h("em", {}, inline(tokens, at)),
  del: ({ tokens }, at) => h("del", {}, inline(tokens, at)),
  codespan: ({ text }, at) => h("code", {}, words(text, at)),
  br: () => h("br"),
  html: ({ raw }, at) => words(raw, at),
  checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  link,
  image: link, // nothing is loaded from elsewhere
};

function said({ tokens, text, raw }, at) {
  return tokens ? inline(tokens, at) : words(text ?? raw, at);
}

function link({ href, text, raw, tokens = [] }, at) {
  const target = webAddress(href);
  if (target === null) return words(raw, at);
  const shown = target.protocol === "mailto:" ? target.pathname : target.host;
  return h(
    "a",
    { href: target.href, title: target.href, target: "_blank", rel: "noopener noreferrer" },
    tokens.length ? inline(tokens, at) : words(text || shown, at),
    !isAddress(text, href, target) && text !== shown && h("span", { class: "target" }, ` (${shown})`),
  );
}

/** Whether a text is the address itself, with the host as the browser reads it. */
function isAddress(text, href, target) {
  return (text === href || `http://${text}` === href) && href.startsWith(target.origin);
}

/** Where a link leads, or nothing where it may not lead there. */
function webAddress(href) {
  if (STAND_IN.test(href) || !URL.canParse(href)) return null;
  const target = new URL(href);
  return PROTOCOLS.includes(target.protocol) ? target : null;
}

/** A text with its placeholders. */
function words(text, { marks }) {
  return text.split(STAND_IN).map((part, place) => {
    if (place % 2 === 0) return part;
    return marks[part] ? chip(marks[part]) : part;
  });
}

/** The same as a string. */
function plain(text, { marks }) {
  return text.split(STAND_IN).map((part, place) => (place % 2 ? (marks[part]?.text ?? part) : part)).join("");
}

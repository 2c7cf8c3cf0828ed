/** Code in parts with scopes (`keyword`, `string`), by the grammars of highlight.js, each fetched when it is needed. */

import hljs from "./vendor/highlight/core.min.js";

const GRAMMARS = {
  bash: () => import("./vendor/highlight/bash.min.js"),
  go: () => import("./vendor/highlight/go.min.js"),
  javascript: () => import("./vendor/highlight/javascript.min.js"),
  json: () => import("./vendor/highlight/json.min.js"),
  python: () => import("./vendor/highlight/python.min.js"),
  sql: () => import("./vendor/highlight/sql.min.js"),
  typescript: () => import("./vendor/highlight/typescript.min.js"),
  xml: () => import("./vendor/highlight/xml.min.js"),
  yaml: () => import("./vendor/highlight/yaml.min.js"),
};
const ALIASES = {
  console: "bash",
  html: "xml",
  js: "javascript",
  py: "python",
  sh: "bash",
  shell: "bash",
  ts: "typescript",
  yml: "yaml",
};

/** What highlight.js writes its findings to instead of markup. */
class PartList {
  root = [];
  open = [this.root];

  addText(text) {
    if (text) this.open.at(-1).push(text);
  }

  openNode(scope) {
    const parts = [];
    this.open.at(-1).push({ scope, parts });
    this.open.push(parts);
  }

  closeNode() {
    if (this.open.length > 1) this.open.pop();
  }

  startScope(scope) {
    this.openNode(scope);
  }

  endScope() {
    this.closeNode();
  }

  __addSublanguage(other) {
    this.open.at(-1).push(...other.root);
  }

  finalize() {}

  toHTML() {
    return "";
  }
}

hljs.configure({ __emitter: PartList });

/** The parts of a text: strings, and `{ scope, parts }`; nothing where the language is not known. */
export async function highlight(text, language) {
  const name = ALIASES[language] ?? language;
  if (!Object.hasOwn(GRAMMARS, name)) return null;
  if (!hljs.getLanguage(name)) hljs.registerLanguage(name, (await GRAMMARS[name]()).default);
  const found = hljs.highlight(text, { language: name, ignoreIllegals: true });
  return found.errorRaised ? null : found._emitter.root;
}

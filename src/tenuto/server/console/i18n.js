/** The page's own words, in the reader's language. Conversations keep theirs. */

import { en } from "./words/en.js";
import { zh } from "./words/zh.js";

const BOOKS = { en: { ...en }, zh: { ...zh } };
const KEPT = "tenuto.language";

let language = localStorage.getItem(KEPT) in BOOKS ? localStorage.getItem(KEPT) : preferred();

function preferred() {
  const first = navigator.languages.map((tag) => tag.slice(0, 2)).find((tag) => tag in BOOKS);
  return first ?? "en";
}

export const languages = Object.keys(BOOKS);

export function currentLanguage() {
  return language;
}

export function speak(chosen) {
  language = chosen;
  localStorage.setItem(KEPT, chosen);
}

/** Add the phrases of a page: `{ en, zh }`. */
export function addWords(books) {
  for (const each of languages) Object.assign(BOOKS[each], books[each]);
}

/** The phrase, with `{name}` filled in. A phrase of two forms is `one | many`, decided by `count`. */
export function t(name, values = {}) {
  const phrase = BOOKS[language][name] ?? BOOKS.en[name] ?? name;
  const forms = phrase.split(" | ");
  const form = forms.length > 1 && values.count !== 1 ? forms[1] : forms[0];
  return form.replaceAll(/\{(\w+)\}/g, (whole, key) => values[key] ?? whole);
}

/** A phrase that is a list. */
export function phrases(name) {
  return (BOOKS[language][name] ?? "").split(" | ").filter(Boolean);
}

export function has(name) {
  return name in BOOKS.en;
}

/** From texts by language, as the server tells them: the reader's, or the first there is. */
export function told(texts) {
  return texts[language] ?? texts.en ?? Object.values(texts)[0] ?? "";
}

/** What something is called: its names by language, or the one that programs know it by. */
export function called(texts, otherwise) {
  return told(texts) || otherwise;
}

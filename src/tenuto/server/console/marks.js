/**
 * Marks of the privacy policy: what stands in a text where a private value stood, or a whole text.
 *
 * `[REDACTED_EMAIL]` was taken out, `[EMAIL_1]` is in the session's vault, `[WITHHELD]` and `[ERASED]` are all that is
 * left of a text. A name is one of ours, or that of a tenant's own pattern.
 */

import { number } from "./format.js";
import { has, t } from "./i18n.js";
import { en } from "./words/en.js";

/** Every name of ours has a phrase, and those of own patterns have none. */
export const NAMES = Object.keys(en).flatMap((phrase) => phrase.match(/^mark\.([A-Z_]+)$/)?.[1] ?? []);
// What may have been anything before it was stored.
const ANY = /\[[A-Z][A-Z0-9_]*\]/;

let known = expression(NAMES);

/** Learn what counts as a mark here: own patterns, and whether a number can stand for a value at all. */
export function learn(privacy) {
  known = expression(privacy?.vault === false ? [] : [...NAMES, ...(privacy?.patterns ?? [])]);
}

/** Only names that are known take a number: `[STEP_1]` is what a user wrote. */
function expression(numbered) {
  const pseudonym = numbered.length ? `|(?<alias>${numbered.join("|")})_(?<number>[0-9]{1,4})` : "";
  return new RegExp(`\\[(?:REDACTED_(?<name>[A-Z][A-Z0-9_]{0,40})|(?<all>WITHHELD|ERASED)${pseudonym})\\]`, "g");
}

/** A text in pieces, in its order: strings, and a mark as `{ text, kind, name, number }`. */
export function pieces(text) {
  const found = [];
  let at = 0;
  for (const match of text.matchAll(known)) {
    if (match.index > at) found.push(text.slice(at, match.index));
    found.push(read(match));
    at = match.index + match[0].length;
  }
  if (at < text.length) found.push(text.slice(at));
  return found;
}

function read({ 0: text, groups: { name, all, alias, number: place = null } }) {
  if (all) return { text, kind: all.toLowerCase(), name: null, number: null };
  return { text, kind: alias ? "pseudonym" : "redacted", name: alias ?? name, number: place };
}

export function hasMarks(text) {
  return pieces(text).some((piece) => typeof piece !== "string");
}

/** What a name is called: by us, or as the tenant wrote it, without the capitals. */
export function called(name) {
  return has(`mark.${name}`) ? t(`mark.${name}`) : name.toLowerCase().replaceAll("_", " ");
}

/** What a mark says, in a word or two. */
export function label({ kind, name, number: place }) {
  if (name === null) return t(`mark.${kind}`);
  return place === null ? called(name) : `${called(name)} ${place}`;
}

/** What became of the value behind a mark. */
export function explain(mark) {
  return t(`mark.${mark.kind}.why`, { what: label(mark) });
}

/** A text for places that show no elements, such as a window's title. */
export function spoken(text) {
  return pieces(text)
    .map((piece) => (typeof piece === "string" ? piece : `[${label(piece)}]`))
    .join("");
}

/** Whether these stored words can be what was said: the same, but for marks. */
export function fits(stored, said) {
  const whole = narrow(said);
  const [first, ...rest] = narrow(stored).split(ANY);
  const last = rest.pop();
  if (last === undefined) return first === whole;
  if (!whole.startsWith(first) || !whole.endsWith(last)) return false;
  let at = first.length;
  for (const piece of rest) {
    const place = whole.indexOf(piece, at);
    if (place === -1) return false;
    at = place + piece.length;
  }
  return at + last.length <= whole.length;
}

/** Where a user types a mark, the server widens its brackets, so that it is none. */
function narrow(text) {
  return text.replaceAll("［", "[").replaceAll("］", "]");
}

/** How many values of each name: the note of a message's metadata. A sender may have put anything else there. */
export function countsIn(metadata) {
  const noted = metadata?.redacted;
  if (typeof noted !== "object" || noted === null) return {};
  return Object.fromEntries(Object.entries(noted).filter(([, many]) => Number.isSafeInteger(many) && many > 0));
}

/** When the stored text of a message was redacted, as its metadata notes it; null where that was before storing. */
export function changedAt(metadata) {
  const noted = metadata?.redacted_at;
  return typeof noted === "string" && !Number.isNaN(Date.parse(noted)) ? noted : null;
}

export function sumCounts(...counts) {
  const sum = {};
  for (const [name, many] of counts.flatMap(Object.entries)) sum[name] = (sum[name] ?? 0) + many;
  return sum;
}

/** `1 e-mail, 2 card`, and how many that is. */
export function tally(counts) {
  const parts = Object.entries(counts).sort(([one], [other]) => place(one) - place(other));
  const count = parts.reduce((all, [, many]) => all + many, 0);
  const list = parts.map(([name, many]) => t("mark.count", { many: number(many), what: called(name) }));
  return { count, list: list.join(t("mark.comma")) };
}

function place(name) {
  return NAMES.includes(name) ? NAMES.indexOf(name) : NAMES.length;
}

/** One session in the table: what it is and has cost, and what one does about it. */

import { fill, h, set, write } from "../dom.js";
import { instant, moment, money, number, until } from "../format.js";
import { t } from "../i18n.js";
import { spoken } from "../marks.js";
import { addressOf, addressOfPage, go } from "../route.js";
import { iconButton } from "./buttons.js";
import { writeExcerpt } from "./excerpt.js";
import { icon } from "./icons.js";
import { writeMarked } from "./marks.js";
import { focusBeside, label, titleOf } from "./session_row.js";
import { titleField } from "./title_field.js";
import { placeRow } from "./window_list.js";

export const COLUMNS = ["title", "user", "assistant", "messages", "tokens", "cost", "changed", "expires"];

export function sessionTableRow(actions, exportFiles) {
  const check = h("input", { type: "checkbox", on: { change: () => actions.page.select([shown.id], check.checked) } });
  const cells = Object.fromEntries(COLUMNS.map((name) => [name, h("span", { role: "cell", class: name })]));
  const link = h("a");
  const said = h("span", { class: "excerpt" });
  const facts = h("span", { class: "facts" }); // where there is no room for columns
  cells.title.append(link, said, facts);
  const traces = h("a", { class: "icon-button" }, icon("traces"));
  const buttons = {
    rename: iconButton("pen", "", rename),
    fork: iconButton("fork", "", fork),
    export: iconButton("download", "", () => exportFiles([shown])),
    delete: iconButton("bin", "", remove),
  };
  // Where they would take half of the row, they lie over it once they are asked for.
  const more = iconButton("more", "", () => unfold(!tools.hasAttribute("data-open")), { class: "unfold-tools" });
  const tools = h(
    "span",
    { role: "cell", class: "tools", on: { focusout: leave, keydown: fold } },
    h("span", { class: "buttons" }, traces, Object.values(buttons)),
    more,
  );
  const node = h(
    "div",
    { class: "table-row", role: "row" },
    h("span", { role: "cell", class: "check" }, check),
    Object.values(cells),
    tools,
  );
  let shown = null;

  function draw({ item, place }, selected, assistantName) {
    placeRow(node, item.id, place);
    const title = spoken(titleOf(item));
    writeMarked(link, titleOf(item), { still: true });
    set(link, "href", addressOf(item.id));
    set(link, "title", title);
    writeExcerpt(said, item.match);
    const assistant = assistantName(item.metadata.assistant);
    write(facts, [item.user, assistant, t("sessions.messages", { count: item.message_count })].filter(Boolean).join(" · "));
    write(cells.user, item.user ?? "");
    write(cells.assistant, assistant);
    write(cells.messages, number(item.message_count));
    write(cells.tokens, number(item.tokens));
    write(cells.cost, money(Number(item.cost_usd), "USD", 4));
    at(cells.changed, item.updated_at, moment);
    at(cells.expires, item.expires_at, until);
    check.checked = selected.includes(item.id);
    set(check, "aria-label", t("sessions.select", { title }));
    set(traces, "href", addressOfPage("traces", `session/${item.id}`));
    label(traces, t("sessions.traces", { title }));
    label(more, t("sessions.actions", { title }));
    if (shown?.id !== item.id) unfold(false);
    for (const [name, button] of Object.entries(buttons)) label(button, t(`sessions.${name}`, { title }));
    shown = item;
  }

  function unfold(open) {
    set(tools, "data-open", open);
    set(more, "aria-expanded", String(open));
  }

  function leave(event) {
    if (event.relatedTarget && !tools.contains(event.relatedTarget)) unfold(false);
  }

  function fold(event) {
    if (event.key !== "Escape" || !tools.hasAttribute("data-open")) return;
    event.preventDefault();
    unfold(false);
    more.focus();
  }

  function rename() {
    unfold(false);
    const close = (byKey) => {
      fill(cells.title, link, facts);
      if (byKey) buttons.rename.focus();
    };
    const { id, title } = shown;
    const input = titleField(title, { close, save: (now) => actions.sessions.rename(id, now) });
    fill(cells.title, input);
    input.focus();
    input.select();
  }

  async function fork() {
    const made = await actions.page.fork(shown.id);
    if (made) go(made);
  }

  function remove() {
    const gone = shown;
    focusBeside(node);
    actions.page.select([gone.id], false);
    actions.forget([gone]);
  }

  return { node, draw };
}

function at(cell, iso, show) {
  const time = cell.firstChild ?? cell.appendChild(h("time"));
  write(time, iso ? show(iso) : "–");
  set(time, "datetime", iso);
  set(time, "title", iso ? instant(iso) : t("sessions.unexpiring"));
}

/** The users who are one person: each with a way to part it, a code for another door, and a field for one from there. */

import { fill, h, set, write } from "../dom.js";
import { clock, instant, moment } from "../format.js";
import { t } from "../i18n.js";
import { sentence } from "../problem.js";
import { textButton } from "./buttons.js";

export function personView(actions, ask) {
  const person = () => actions.page.person;
  const list = h("ul", { class: "memory-list identities" });
  const code = h("output", { class: "secret", tabindex: 0 });
  const until = h("p", { class: "hint" });
  const shown = h("div", { class: "link-code", role: "status" }, h("p", {}, t("person.code.text")), code, until);
  const refused = h("p", { class: "notice", role: "alert" });
  const typed = h("input", {
    name: "code",
    required: true,
    maxlength: 100,
    autocomplete: "off",
    placeholder: t("person.use.code"),
    "aria-label": t("person.use.code"),
  });
  async function use(event) {
    event.preventDefault();
    if (await person().use(typed.value.trim(), t("person.linked"))) typed.value = "";
  }
  const form = h(
    "form",
    { class: "remember", "aria-label": t("person.use"), on: { submit: use } },
    typed,
    h("button", { class: "text-button strong" }, t("person.use")),
    textButton(t("person.code"), () => person().show(t("person.linked"))),
  );
  const node = h(
    "section",
    { data: { section: "person" } },
    h("h2", {}, t("person.title")),
    h("p", { class: "hint" }, t("person.lead")),
    list,
    form,
    shown,
    refused,
  );
  let last = null;

  function draw({ scope }, now) {
    const known = Boolean(scope?.user) && now.person !== null;
    set(node, "hidden", !known);
    if (!known) return;
    set(shown, "hidden", now.code === null);
    if (now.code !== null) {
      write(code, now.code.code);
      write(until, t("person.code.until", { time: clock(now.code.expires_at) }));
    }
    fill(refused, now.unlinkable && sentence(now.unlinkable));
    set(refused, "hidden", !now.unlinkable);
    if (now.person !== last) fill(list, now.person.identities.map((identity) => row(identity, scope.user)));
    last = now.person;
  }

  function row({ user, linked_at: at, how }, own) {
    return h(
      "li",
      {},
      h(
        "div",
        { class: "memory-body" },
        h("p", { class: "memory-text", dir: "auto" }, user),
        h(
          "p",
          { class: "memory-facts" },
          user === own && h("span", { class: "chip" }, t("person.own")),
          h("span", {}, t(`person.how.${how}`)),
          h("time", { datetime: at, title: instant(at) }, moment(at)),
        ),
      ),
      textButton(t("person.part"), () => part(user), { "aria-label": t("person.part.user", { user }) }),
    );
  }

  async function part(user) {
    const yes = await ask({
      title: t("person.part.title"),
      text: t("person.part.text", { user }),
      yes: t("person.part"),
    });
    if (yes) await person().part(user, t("person.parted"));
  }

  return { node, draw };
}

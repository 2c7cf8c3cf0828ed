/** A secret that is shown once. Where it ended open mode, the page asks for it and goes on. */

import { h, set, write } from "../dom.js";
import { t } from "../i18n.js";
import { me } from "../me.js";
import { textButton } from "./buttons.js";

export function newKeyView(actions) {
  const secret = h("output", { class: "secret", tabindex: 0 });
  const copied = h("span", { class: "hint", role: "status" });
  const copy = textButton(t("keys.copy"), async () => {
    await navigator.clipboard.writeText(secret.textContent).then(
      () => write(copied, t("keys.copied")),
      // Without the permission, the text is selected for the keyboard.
      () => getSelection().selectAllChildren(secret),
    );
  });
  const done = textButton(t("keys.done"), () => actions.page.putAway());
  const typed = h("input", { name: "pasted", type: "password", autocomplete: "off", required: true });
  const wrong = h("p", { class: "grave", role: "alert", hidden: true }, t("keys.first.wrong"));
  const proceed = h(
    "form",
    { class: "proceed", on: { submit: goOn } },
    h("p", {}, t("keys.first.text")),
    h("label", {}, t("keys.first.label"), typed),
    wrong,
    h("button", { class: "text-button strong" }, t("keys.first.go")),
  );
  const node = h(
    "section",
    { class: "new-key", "aria-labelledby": "new-key-title", hidden: true },
    h("h2", { id: "new-key-title" }, t("keys.secret")),
    h("p", {}, t("keys.secret.text")),
    secret,
    h("p", { class: "secret-tools" }, copy, done, copied),
    proceed,
  );

  function goOn(event) {
    event.preventDefault();
    const same = typed.value.trim() === secret.textContent;
    set(wrong, "hidden", same);
    if (same) actions.identify({ key: secret.textContent, user: me().user });
  }

  function draw({ created, first }) {
    const shown = created?.secret ?? "";
    if (secret.textContent !== shown) {
      write(secret, shown);
      write(copied, "");
      typed.value = "";
    }
    set(node, "hidden", created === null);
    set(proceed, "hidden", !first);
    set(done, "hidden", first);
  }

  return { node, draw };
}

/** One API key: what it is for, whom it acts for, when it was used, and the way to revoke it. */

import { fill, h, set, write } from "../dom.js";
import { instant } from "../format.js";
import { t } from "../i18n.js";
import { textButton } from "./buttons.js";

export function keyRow(actions, ask) {
  const name = h("b", { class: "key-name" });
  const facts = h("p", { class: "key-facts" });
  const badges = h("span", { class: "key-badges" });
  const revoke = textButton(t("keys.revoke"), begin, { class: "text-button grave" });
  const node = h("li", {}, h("div", { class: "key-body" }, h("p", {}, name, " ", badges), facts), revoke);
  let shown = null;

  async function begin() {
    const { one, own } = shown;
    const text = t(own ? "keys.revoke.own" : "keys.revoke.text", { name: called(one) });
    if (await ask({ title: t("keys.revoke.title"), text, yes: t("keys.revoke") }))
      await actions.page.revoke(one.id, t("keys.revoked"));
  }

  function draw(item) {
    if (shown?.one === item.one && shown.own === item.own) return;
    shown = item;
    const { one, own } = item;
    set(node, "data-key", one.id);
    set(node, "data-revoked", one.revoked_at !== null);
    write(name, called(one));
    const says = [t(`keys.role.${one.role}`), own && t("keys.own")].filter(Boolean);
    fill(
      badges,
      says.map((text) => h("span", { class: "chip" }, text)),
    );
    fill(
      facts,
      told(one).map((text) => h("span", {}, text)),
    );
    set(revoke, "hidden", one.revoked_at !== null);
    set(revoke, "aria-label", t("keys.revoke.label", { name: called(one) }));
  }

  return { node, draw };
}

/** The name that its maker gave it, or its id. */
function called(key) {
  return key.name || key.id;
}

function told(key) {
  return [
    key.name && key.id,
    key.agent && t("keys.for.agent", { name: key.agent }),
    key.user ? t("keys.for.user", { name: key.user }) : t("keys.for.any"),
    key.site !== null && t("keys.for.site", { name: key.site || "–" }),
    t("keys.created", { when: instant(key.created_at) }),
    key.last_used_at ? t("keys.used", { when: instant(key.last_used_at) }) : t("keys.unused"),
    key.revoked_at && t("keys.revoked.at", { when: instant(key.revoked_at) }),
  ].filter(Boolean);
}

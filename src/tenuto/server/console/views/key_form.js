/** The form for a new API key. On an open server it says that the first key ends open mode. */

import { h, set } from "../dom.js";
import { t } from "../i18n.js";

const ROLES = ["member", "admin", "privacy.reveal", "operator"];

export function keyForm(actions) {
  const name = field("name", { maxlength: 200 });
  const role = h(
    "select",
    { name: "role" },
    ROLES.map((each) => h("option", { value: each }, t(`keys.role.${each}`))),
  );
  const bound = { tenant_id: field("tenant"), user_id: field("user"), site_id: field("site"), agent: field("agent") };
  const tenant = label("tenant", bound.tenant_id);
  const hint = h("p", { class: "hint" });
  const warning = h("p", { class: "hint strong" }, t("keys.first.warning"));
  const send = h("button", { class: "text-button strong" }, t("keys.create"));
  const node = h(
    "form",
    { class: "key-form", "aria-labelledby": "key-form-title", on: { submit: create } },
    h("h2", { id: "key-form-title" }, t("keys.create")),
    warning,
    h(
      "div",
      { class: "fields" },
      label("name", name),
      label("role", role),
      tenant,
      label("user", bound.user_id),
      label("site", bound.site_id),
      label("agent", bound.agent),
    ),
    hint,
    h("p", {}, send),
  );
  let open = null;

  role.addEventListener("change", explain);

  function explain() {
    hint.textContent = t(`keys.role.${role.value}.hint`);
    // A key of an agent acts on tasks alone, so it has no other role.
    bound.agent.disabled = role.value !== "member";
  }

  async function create(event) {
    event.preventDefault();
    const given = Object.entries(bound).filter(([, input]) => !input.disabled && input.value.trim());
    const body = { name: name.value.trim(), role: role.value };
    for (const [what, input] of given) body[what] = input.value.trim();
    if (await actions.page.create(body)) node.reset();
    explain();
  }

  function draw(state, now) {
    send.disabled = now.busy;
    const isOpen = state.house?.auth.startsWith("open") ?? false;
    if (isOpen === open) return;
    open = isOpen;
    // Only an admin can create the next key here.
    role.value = open ? "admin" : "member";
    // A credential belongs to one tenant; on an open server any may be named.
    set(tenant, "hidden", !open);
    bound.tenant_id.disabled = !open;
    set(warning, "hidden", !open);
    explain();
  }

  return { node, draw };
}

function label(what, input) {
  return h("label", {}, t(`keys.field.${what}`), input);
}

function field(what, further = {}) {
  return h("input", {
    name: what,
    autocomplete: "off",
    spellcheck: "false",
    placeholder: t(`keys.field.${what}.none`),
    ...further,
  });
}

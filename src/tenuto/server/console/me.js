/** Who is asking. A key lives as long as the tab does, and nowhere but in this browser. */

const KEY = "tenuto.key";
const USER = "tenuto.user";

export function me() {
  return { key: sessionStorage.getItem(KEY) ?? "", user: sessionStorage.getItem(USER) ?? "" };
}

export function becomeMe({ key, user }) {
  for (const [name, value] of [
    [KEY, key],
    [USER, user],
  ]) {
    if (value) sessionStorage.setItem(name, value);
    else sessionStorage.removeItem(name);
  }
}

/** Whether a server that lets everyone in has no user to go by: what belongs to users is neither kept nor found. */
export function isNameless({ house }) {
  return Boolean(house?.auth.startsWith("open")) && !house.memories_without_user && !me().user;
}

/** The headers that say it. Header values are bytes: a name of any language travels as UTF-8. */
export function identity() {
  const { key, user } = me();
  return { ...(key && { Authorization: `Bearer ${bytes(key)}` }), ...(user && { "X-User-ID": bytes(user) }) };
}

export function bytes(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

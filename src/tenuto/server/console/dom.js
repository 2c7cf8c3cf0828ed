/** Elements, built one by one: text only ever becomes a text node, so nothing anybody said can turn into markup. */

// What is typed may be Arabic or Hebrew: it stands as its own letters run.
const FIELDS = ["input", "textarea"];

/**
 * Make an element. `on` holds listeners, `data` the data attributes; `true` sets an attribute, `false`, `null` and
 * `undefined` leave it out. Children are nodes, texts, or lists of them; nothing stands for no child.
 */
export function h(tag, { on = {}, data = {}, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  if (FIELDS.includes(tag)) element.dir = "auto";
  for (const [name, value] of Object.entries(attributes)) set(element, name, value);
  for (const [name, value] of Object.entries(data)) if (value != null) element.dataset[name] = value;
  for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener);
  element.append(...shown(children));
  return element;
}

/** Make an element of a picture; `class` and all others are attributes. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) set(element, name, value);
  element.append(...shown(children));
  return element;
}

/** Set an attribute, or remove it. */
export function set(element, name, value) {
  if (value === false || value == null) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : value);
}

/** Put these children in place of what is there. */
export function fill(element, ...children) {
  element.replaceChildren(...shown(children));
  return element;
}

/** Write a text where it differs: a node that stays the same is not announced again. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function shown(children) {
  return children.flat(Infinity).filter((child) => child != null && child !== false);
}

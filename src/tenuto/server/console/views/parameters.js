/** What was asked of the model beside the prompt, as a row of facts; nothing where nothing was. */

import { h } from "../dom.js";
import { t } from "../i18n.js";

export function parameterRows({ parameters = {} }) {
  const given = Object.entries(parameters).map(([name, value]) => `${name}: ${JSON.stringify(value)}`);
  return given.length ? [[t("insight.parameters"), h("code", { dir: "ltr" }, given.join(", "))]] : [];
}

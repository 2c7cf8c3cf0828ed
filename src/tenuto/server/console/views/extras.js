/** What came with an answer besides words: goods, orders, evidence, the task that led to it. */

import { h } from "../dom.js";
import { money, number } from "../format.js";
import { has, t } from "../i18n.js";
import { addressOfTask } from "../route.js";
import { marked } from "./marks.js";

export function extras({ goods = [], orders = [], evidence = [], policy_mode: policy = null, task_id: task = null }) {
  return [
    goods.length > 0 && h("ul", { class: "cards", tabindex: 0, "aria-label": t("goods.list") }, goods.map(item)),
    orders.length > 0 && h("ul", { class: "cards", tabindex: 0, "aria-label": t("orders.list") }, orders.map(order)),
    policy &&
      h(
        "div",
        { class: "evidence", data: { policy } },
        h("span", { class: "policy" }, mode(policy)),
        evidence.map(piece),
      ),
    typeof task === "string" && h("a", { class: "to-task", href: addressOfTask(task) }, t("tasks.of_answer")),
  ];
}

function item({ id, name, brand, price, currency, rating, sales, stock, attributes = {} }) {
  const facts = [
    rating != null && t("goods.rating", { rating: number(rating, 1) }),
    sales != null && t("goods.sold", { count: number(sales) }),
    stock != null && (stock > 0 ? t("goods.stock", { count: number(stock) }) : t("goods.out")),
  ];
  return card({
    id,
    over: brand,
    name,
    price: price != null && money(price, currency),
    facts,
    more: Object.values(attributes),
  });
}

function order({ id, name, quantity, total, currency, status, ordered_on: on, tracking }) {
  const state = has(`orders.${status}`) ? t(`orders.${status}`) : status;
  const several = quantity > 1 && `× ${number(quantity)}`;
  return card({
    id,
    over: id,
    name,
    price: money(total, currency),
    facts: [state, on, several],
    more: tracking ? [tracking] : [],
  });
}

function card({ id, over, name, price, facts, more }) {
  return h(
    "li",
    { data: { id } },
    over && h("span", { class: "over" }, marked(String(over))),
    h("span", { class: "name", dir: "auto" }, marked(String(name))),
    price && h("span", { class: "price" }, price),
    h("span", { class: "facts" }, facts.filter(Boolean).join(" · ")),
    more.length > 0 && h("span", { class: "facts" }, marked(more.map(String).join(" · "))),
  );
}

function mode(policy) {
  return has(`policy.${policy}`) ? t(`policy.${policy}`) : policy;
}

function piece({ id, title }) {
  return h("span", { class: "piece", data: { id } }, h("b", {}, id), title && [" ", marked(String(title))]);
}

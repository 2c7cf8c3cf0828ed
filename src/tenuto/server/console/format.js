/** Numbers, money and moments, the way the reader's language writes them. */

import { currentLanguage, t } from "./i18n.js";

const DAY = 86_400_000;

export function number(value, digits = 0) {
  return new Intl.NumberFormat(currentLanguage(), { maximumFractionDigits: digits }).format(value);
}

export function money(value, currency = "USD", digits = 2) {
  try {
    const style = { style: "currency", currency, currencyDisplay: "narrowSymbol", maximumFractionDigits: digits };
    return new Intl.NumberFormat(currentLanguage(), { ...style, minimumFractionDigits: 0 }).format(value);
  } catch {
    return `${value} ${currency}`; // an unknown currency is shown as it is
  }
}

export function milliseconds(value) {
  if (value < 1000) return t("time.milliseconds", { value: number(value, value < 10 ? 1 : 0) });
  return t("time.seconds", { value: number(value / 1000, 1) });
}

/** How long something took that may take days. */
export function lasting(value) {
  const minutes = Math.round(value / 60_000);
  if (value < 60_000) return milliseconds(value);
  if (minutes < 10) return unit(value / 60_000, "minute");
  if (minutes < 120) return unit(minutes, "minute");
  return minutes < 2880 ? unit(minutes / 60, "hour") : unit(minutes / 1440, "day");
}

function unit(value, name) {
  const style = { style: "unit", unit: name, unitDisplay: "short", maximumFractionDigits: 1 };
  return new Intl.NumberFormat(currentLanguage(), style).format(value);
}

/** Today the time, this week the day, then the date. */
export function moment(iso, now = new Date()) {
  const then = new Date(iso);
  const age = now - then;
  if (age < 60_000) return t("time.now");
  const show = (options) => new Intl.DateTimeFormat(currentLanguage(), options).format(then);
  if (then.toDateString() === now.toDateString()) return show({ timeStyle: "short" });
  if (age < 6 * DAY) return show({ weekday: "long" });
  return show({ day: "numeric", month: "short", ...(then.getFullYear() !== now.getFullYear() && { year: "numeric" }) });
}

/** The time of day, to the second. */
export function clock(iso) {
  return new Intl.DateTimeFormat(currentLanguage(), { timeStyle: "medium" }).format(new Date(iso));
}

/** A moment, in full. */
export function instant(iso) {
  return new Intl.DateTimeFormat(currentLanguage(), { dateStyle: "medium", timeStyle: "short" }).format(new Date(iso));
}

/** An amount of memory. */
export function bytes(value) {
  const units = ["byte", "kilobyte", "megabyte", "gigabyte"];
  const step = Math.min(Math.floor(Math.log10(Math.max(value, 1)) / 3), units.length - 1);
  return unit(value / 1000 ** step, units[step]);
}

/** How long something stays that ends at a moment. */
export function until(iso) {
  const hours = (new Date(iso) - Date.now()) / 3_600_000;
  if (hours < 1) return t("time.soon");
  return hours < 48 ? t("time.hours", { count: Math.round(hours) }) : t("time.days", { count: Math.round(hours / 24) });
}

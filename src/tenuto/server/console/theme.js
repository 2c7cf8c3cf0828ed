/** Light or dark: what the system prefers, until the user chooses. */

const KEPT = "tenuto.theme";

export function currentTheme() {
  return localStorage.getItem(KEPT) ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

export function paint(theme = localStorage.getItem(KEPT)) {
  if (theme === null) return;
  localStorage.setItem(KEPT, theme);
  document.documentElement.dataset.theme = theme;
}

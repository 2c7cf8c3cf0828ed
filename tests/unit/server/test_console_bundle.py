"""Modules of the console joined into few files: they behave as before, and errors name the module they are from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenuto.server.console_bundle import join_modules, join_styles
from tests.npm_clients import run_node

MODULES = {
    "app.js": """/** Begins. */

import * as words from "./words.js";
import {
  called as named,
  row,
} from "./views/row.js";

console.log(named, row("a"), words.en, new URL("./css/late.css", import.meta.url).pathname.split("/").slice(-2).join());
const { late } = await_late();
function await_late() {
  import("./pages/late.js").then((page) => page.late()).catch((error) => console.log(error.stack));
  return {};
}
""",
    "words.js": 'export const en = "hello";\n',
    "views/row.js": """import { en } from "../words.js";

/** A row.
 * import { nothing } from "./nowhere.js";
 */
export function row(name) {
  // Comments go, lines stay.
  return `${name}: ${en}`;
}
export const called = "row";
""",
    "pages/late.js": """import { row } from "../views/row.js";
import rule from "../vendor/rule.js";
import { own } from "./own.js";

async function late() {
  console.log(row("late"), rule(), own, typeof (await import("../vendor/other.js")).other);
  throw new Error("late");
}

export { late };
""",
    "pages/own.js": "export class Own {}\nexport const own = new Own() instanceof Own;\n",
    "vendor/rule.js": "const a=()=>'ruled';export{a as default};",
    "vendor/other.js": "export const other = 1;",
}


async def test_joined_modules_do_what_the_modules_do(tmp_path: Path) -> None:
    joined = join_modules(MODULES)
    for name, text in {**MODULES, **{f"abc/{name}": text for name, text in (MODULES | joined).items()}}.items():
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    (tmp_path / "package.json").write_text('{"type": "module"}')

    said = await run_node("--enable-source-maps", tmp_path / "abc" / "app.js", cwd=tmp_path)

    assert {name for name in joined if not name.endswith(".map")} == {"app.js", "pages/late.js"}
    assert said.startswith("row a: hello hello css,late.css\nlate: hello ruled true number\nError: late\n")
    assert f"{tmp_path}/pages/late.js:7:" in said


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("export let open = 1;", "app.js:2: this form"),
        ("export default 1;", "app.js:2: this form"),
        ('export * from "./b.js";', "app.js:2: this form"),
        ("const a = 1;\nexport { a as b };", "app.js: an export under another name"),
        ('import { b } from "./b.js";', "app.js: imports itself"),
        ('import { c } from "./c.js";', "c.js: does not exist"),
    ],
)
def test_a_form_that_cannot_be_joined_is_refused(line: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        join_modules({"app.js": f"const first = 1;\n{line}\n", "b.js": 'import { first } from "./app.js";\n'})


def test_joined_styles_keep_their_order_and_lose_their_comments() -> None:
    assert join_styles(["/* One. */\n\na {\n}\n", "/* Two. */\nb {\n}\n"]) == "a {\n}\nb {\n}\n"

"""The page names what it begins with, so that a browser asks for it all at once."""

from __future__ import annotations

import re
from pathlib import Path

from tenuto.server.console_files import read_files

PAGE = b'<head><script type="module" src="console/app.js"></script></head>'
FILES = {
    "index.html": PAGE,
    "app.js": b'import { a } from "./views/a.js";\nexport { c } from "./c.js";\nimport("./later.js");',
    "views/a.js": b'import { b } from "../b.js";\nimport{c}from"../c.js";',
    "b.js": b'import "./app.js";',
    "c.js": b"",
    "later.js": b"",
    "css/app.css": b'@import "base.css";\n',
    "css/base.css": b"",
}


def test_a_page_names_each_file_that_it_begins_with_once(tmp_path: Path) -> None:
    for name, body in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(body)

    page = read_files(tmp_path)["index.html"].body.decode()

    named = re.findall(r'(?:modulepreload|as="style)" href="console/[0-9a-f]{12}/([^"]+)"', page)
    assert named == ["css/base.css", "views/a.js", "c.js", "b.js"]

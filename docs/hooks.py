"""Puts this repository's files that the pages link to (`../PATH`) into the site: tables as pages, others as text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

LINK = re.compile(r"\]\(\.\./([^)#]+)\)")
SHOWN_AS_THEY_ARE = (".png", ".pdf")
TABLES = "results/tables/"


def on_files(files: Files, config: Any) -> Files:
    root = Path(config.docs_dir).parent
    linked = {path for page in files.documentation_pages() for path in LINK.findall(page.content_string)}
    for path in sorted(linked):
        if not (root / path).is_file():
            raise PluginError(f"a page links to ../{path}, which is no file")
        if path.startswith(TABLES):  # a page of its own: a table of hundreds of characters a line is no text to read
            title = Path(path).stem.replace("_", " ").capitalize()
            files.append(File.generated(config, _place(path), content=f"# {title}\n\n{(root / path).read_text()}"))
        else:
            files.append(File.generated(config, _place(path), abs_src_path=str(root / path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return LINK.sub(lambda found: f"]({_place(found[1])})", markdown)


def _place(path: str) -> str:
    """Where a file stands in the site; a browser shows .txt, and would download .py."""
    return f"files/{path}" if path.startswith(TABLES) or path.endswith(SHOWN_AS_THEY_ARE) else f"files/{path}.txt"

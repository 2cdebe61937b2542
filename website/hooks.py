"""What MkDocs calls while it builds the site: pages made of files outside docs/, generated parts, links between them."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import sys
from types import ModuleType
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Page -> the file outside docs/ that it shows.
OUTSIDE = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
_PAGES = {name: page for page, name in OUTSIDE.items()}
_LINK = re.compile(r"\]\((?:\.\./)?(README|CONTRIBUTING|CHANGELOG)\.md(?=[#)])")


def _reference() -> ModuleType:
    if str(ROOT) not in sys.path:  # the site shows this tree's commands, whatever is installed
        sys.path.insert(0, str(ROOT))
    spec = importlib.util.spec_from_file_location("reference", ROOT / "website" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def within_docs(text: str) -> str:
    """The Markdown of a file at the root as that of a page: docs/ is the site's root."""
    return re.sub(r"\]\(docs/", "](", text)


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the pages that are files outside docs/."""
    for page, name in OUTSIDE.items():
        files.append(File.generated(config, page, content=within_docs((ROOT / name).read_text())))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fills in generated parts, and turns links to files outside docs/ into links to their pages."""
    linked = _LINK.sub(lambda found: f"]({_PAGES[found[1] + '.md']}", markdown)
    return _reference().filled(linked) if "<!-- generated: " in linked else linked

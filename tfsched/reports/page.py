"""A self-contained HTML page: text, tables and pictures, nothing loaded from anywhere."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1150px; margin: 2em auto; padding: 0 1em; color: #1b1f24 }
h1 { font-size: 1.6em } h2 { margin-top: 2em; border-bottom: 1px solid #ccd; padding-bottom: .2em } h3 { margin-top: 1.5em }
table { border-collapse: collapse; margin: .8em 0 } th, td { padding: .25em .7em; text-align: right }
th, td { border-bottom: 1px solid #e3e6ea }
th:first-child, td:first-child, td.text { text-align: left } th { background: #f4f6f8 } tr.best td { background: #e9f6ec }
img { max-width: 100%; border: 1px solid #e3e6ea }
pre { background: #f4f6f8; padding: .8em; overflow-x: auto; max-height: 24em }
.note { color: #57606a }
"""


class Page:
    """Collects sections; every text is escaped, since names come from users' files."""

    def __init__(self, title: str) -> None:
        self._title = _clean(title)
        self._parts: list[str] = [f"<h1>{html.escape(self._title)}</h1>"]
        self._sections: list[tuple[str, str]] = []

    def section(self, title: str) -> None:
        """Starts a section that the contents list."""
        anchor = f"s{len(self._sections)}"
        self._sections.append((anchor, title))
        self._parts.append(f'<h2 id="{anchor}">{html.escape(_clean(title))}</h2>')

    def heading(self, title: str) -> None:
        self._parts.append(f"<h3>{html.escape(_clean(title))}</h3>")

    def text(self, text: str, note: bool = False) -> None:
        self._parts.append(f"<p{' class=note' if note else ''}>{html.escape(_clean(text))}</p>")

    def code(self, text: str) -> None:
        self._parts.append(f"<pre>{html.escape(_clean(text))}</pre>")

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]], best: int | None = None) -> None:
        """A table; row number `best` is marked."""
        self._parts.append("<table><tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in header) + "</tr>")
        for number, row in enumerate(rows):
            cells = "".join(f"<td>{html.escape(_clean(cell))}</td>" for cell in row)
            self._parts.append(f"<tr{' class=best' if number == best else ''}>{cells}</tr>")
        self._parts.append("</table>")

    def picture(self, content: bytes, what: str) -> None:
        """A PNG, inside the page."""
        data = base64.b64encode(content).decode("ascii")
        self._parts.append(f'<p><img alt="{html.escape(_clean(what), quote=True)}" src="data:image/png;base64,{data}"></p>')

    def download(self, name: str, text: str, label: str) -> None:
        """A link that saves `text` as a file."""
        data = base64.b64encode(text.encode("utf-8")).decode("ascii")
        self._parts.append(
            f'<p><a download="{html.escape(name, quote=True)}" href="data:application/json;base64,{data}">'
            f"{html.escape(label)}</a></p>"
        )

    def to_html(self) -> str:
        contents = " · ".join(f'<a href="#{anchor}">{html.escape(_clean(title))}</a>' for anchor, title in self._sections)
        head, *rest = self._parts
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>{html.escape(self._title)}</title><style>{STYLE}</style></head>\n<body>\n{head}\n<p>{contents}</p>\n"
            + "\n".join(rest)
            + "\n</body></html>\n"
        )


def _clean(text: str) -> str:
    """Without lone surrogates, which UTF-8 cannot hold, and control characters, which HTML cannot."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(c if c in "\n\t" or c >= " " else "?" for c in whole)

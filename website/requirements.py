"""Prints what building the site needs: the package's own requirements and those of the extra `docs`, without the package.

Installing `.[docs]` would compile the native library, which the site does not need.
"""

from __future__ import annotations

import pathlib
import re

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10: the copy that pip brings along
    from pip._vendor import tomli as tomllib

PYPROJECT = pathlib.Path(__file__).resolve().parents[1] / "pyproject.toml"


def requirements(extra: str) -> list[str]:
    """Those of the package and of one extra; an extra that another one names (`tfsched[plot]`) is followed."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    found: list[str] = list(project["dependencies"])
    for requirement in project["optional-dependencies"][extra]:
        own = re.fullmatch(r"tfsched\[(.*)\]", requirement)
        names = own[1].split(",") if own else []
        found += [text for name in names for text in requirements(name)] if own else [requirement]
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    print("\n".join(requirements("docs")))

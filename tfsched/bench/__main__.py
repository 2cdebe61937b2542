"""`python -m tfsched.bench --model=mlp24 --steps=5`: the bench without its command line."""

from __future__ import annotations

import dataclasses
import sys

from tfsched.bench.command import BenchConfig, run
from tfsched.bench.errors import BenchError

_LISTS = {"model": "models", "settings": "settings"}


def _parse(arguments: list[str]) -> BenchConfig:
    fields = {field.name: field for field in dataclasses.fields(BenchConfig)}
    values: dict[str, object] = {}
    for argument in arguments:
        name, _, text = argument.removeprefix("--").partition("=")
        name = _LISTS.get(name, name)
        if not argument.startswith("--") or name not in fields:
            raise BenchError(f"argument {argument!r} is not understood: write --name=value")
        default = fields[name].default
        if name in _LISTS.values():
            values[name] = text.split(",")
        elif isinstance(default, bool):
            values[name] = text in ("", "true", "1")
        elif isinstance(default, (int, float)):
            values[name] = type(default)(text)
        else:
            values[name] = text
    return BenchConfig(**{"models": [], **values})  # type: ignore[arg-type]


def main() -> int:
    """Runs the bench; 1 after a user's mistake."""
    try:
        run(_parse(sys.argv[1:]))
    except (BenchError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The parts of the reference that come from the code: commands, counters, options, errors and warnings, as Markdown.

The site's build puts them into docs/*.md where a line says `<!-- generated: NAME -->` (website/hooks.py).
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]

_MARKER = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def filled(text: str) -> str:
    """A page's Markdown with each marker line replaced by what it names.

    Raises:
      KeyError: a marker names nothing.
    """
    return _MARKER.sub(lambda found: PARTS[found[1]](), text)


def _cell(text: Any) -> str:
    """One cell of a table: a bar would end it, and mkdocs takes <word> for HTML."""
    return str(text).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


# --- commands ---------------------------------------------------------------------------------------------------------


def commands() -> str:
    """Every command: what it does, its usage line, its arguments, an example, its flags."""
    from tfsched.cli import COMMANDS

    return "\n".join(_command(name, about) for name, about in COMMANDS.items())


def _command(name: str, about: Any) -> str:
    from tfsched.commands.flags import CommandFlags

    module = importlib.import_module(f"tfsched.commands.{name}")
    flags = CommandFlags(name)
    module.define(flags)
    usage = " ".join(filter(None, ["tfsched", name, "[flags]", about.usage]))
    lines = [f"## tfsched {name}", "", f"{about.summary[0].upper()}{about.summary[1:]}.", "", "```", usage, "```", ""]
    if arguments := _arguments(about.usage):
        lines += ["| argument | meaning |", "|---|---|"]
        lines += [f"| `{argument}` | {_cell(meaning)} |" for argument, meaning in arguments.items()]
        lines += [""]
    lines += ["Example:", "", "```", about.example, "```", ""]
    if not flags.names():
        return "\n".join(lines)
    lines += ["| flag | default | meaning, and its environment variable |", "|---|---|---|"]
    for flag_name in flags.names():
        flag, variable = flags.values[flag_name], flags.variable(flag_name)
        shown = f"--[no]{flag_name}" if flag.boolean else f"--{flag_name}"
        default = "" if flag.default in (None, "") else f"`{str(flag.default_as_str).strip(chr(39))}`"
        text = re.sub(r"^<[^>]*>: ", "", flag.help.replace(f" [{variable}]", ""))  # absl puts the choices first
        choices = flags.choices(flag_name)
        text += f" (one of {', '.join(choices)})" if choices else ""
        lines.append(f"| `{shown}`{{.flag}} | {_cell(default)} | {_cell(text)} (`{variable}`) |")
    return "\n".join([*lines, ""])


# What a word of a usage line stands for.
_ARGUMENTS = {
    "ADDRESS": "host:port of a task's control service",
    "DIRECTORY": "where benches, traces, DAGs, layer tables, simulations and sweeps are",
    "FILE": "a DAG, a step trace, a RunMetadata or a layer table; --model takes its place",
    "HOST:PORT": "where a task's control service listens",
    "MODULE": "a Python module",
    "TRACE": "a file that `tfsched trace` wrote",
    "bash": "the shell",
    "zsh": "the shell",
}
_PROGRAM = "the program to run"


def _arguments(usage: str) -> dict[str, str]:
    """The words of a usage line that a user replaces, with their meaning."""
    words = [word for word in re.findall(r"[A-Z][A-Z:]+|bash|zsh", usage) if word in _ARGUMENTS]
    return {word: _PROGRAM if word == "FILE" and "MODULE" in usage else _ARGUMENTS[word] for word in words}


# --- counters and options ---------------------------------------------------------------------------------------------


def counters() -> str:
    """Every entry of `tfsched.stats()`, with its metric."""
    from tfsched.control.fields import FIELDS, Kind, metric_name

    lines = ["| in `stats()` | metric | type | what |", "|---|---|---|---|"]
    for key, field in FIELDS.items():
        metric = "" if field.kind is Kind.TEXT else f"`{metric_name(key)}`"
        lines.append(f"| `{key}` | {metric} | {field.kind.value} | {_cell(field.help)} |")
    return "\n".join(lines)


def options() -> str:
    """Every field of `tfsched.Options`, with its default."""
    from tfsched._options import Options

    lines = ["| option | type | default |", "|---|---|---|"]
    for field in dataclasses.fields(Options):
        lines.append(f"| `{field.name}` | {type(field.default).__name__} | `{field.default!r}` |")
    return "\n".join(lines)


# --- errors and warnings ----------------------------------------------------------------------------------------------


class Message(NamedTuple):
    """A sentence that the code may say; what stands in braces is filled in."""

    part: str
    kind: str
    text: str


# Package of tfsched -> its heading.
_PLACES = {
    "": "The public API",
    "bench": "tfsched bench",
    "commands": "The command line",
    "control": "Monitoring",
    "eager": "Functions",
    "grappler": "The pass",
    "launch": "tfsched run",
    "ops": "The native library",
    "ordering": "Orderings, plans and DAGs",
    "parallel": "tfsched.parallel",
    "placement": "Placement",
    "reports": "Pictures and pages",
    "simulator": "The simulator",
    "tracing": "Traces",
    "tuning": "Tuning",
}
_WARN = {"log.warning", "log.error", "logging.warning", "logging.error", "say_once", "_warn"}


def messages() -> list[Message]:
    """The sentences in the Python files of the package, in the order of the files."""
    found: list[Message] = []
    for path in sorted((ROOT / "tfsched").rglob("*.py")):
        parts = path.relative_to(ROOT / "tfsched").parts
        found += _messages_of(ast.parse(path.read_text()), parts[0] if len(parts) > 1 else "")
    return list(dict.fromkeys(found))


def _messages_of(tree: ast.AST, part: str) -> Iterator[Message]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            name = _name(node.exc.func)
            if name.endswith(("Error", "Failed")) and name not in ("AttributeError", "ImportError", "KeyError"):
                yield from _sentence(node.exc, part, name)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in _WARN:
            yield from _sentence(node, part, "warning")


def _sentence(call: ast.Call, part: str, kind: str) -> Iterator[Message]:
    text = _template(call.args[0]) if call.args else ""
    if " " in text.strip():  # a name alone is no sentence
        yield Message(part, kind, text)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _template(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[.\d]*[a-z]", "…", node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(value.value if isinstance(value, ast.Constant) else "…" for value in node.values)  # type: ignore[misc]
    return ""


def errors() -> str:
    """All errors, by the part of tfsched that raises them."""
    return _listed(lambda message: message.kind != "warning")


def warnings() -> str:
    """All warnings of the Python side, likewise."""
    return _listed(lambda message: message.kind == "warning")


def _listed(wanted: Callable[[Message], bool]) -> str:
    chosen = [message for message in messages() if wanted(message)]
    lines: list[str] = []
    for part in dict.fromkeys(message.part for message in chosen):
        lines += [f"### {_PLACES.get(part, part)}", ""]
        for message in chosen:
            if message.part == part:
                kind = "" if message.kind == "warning" else f" ({message.kind})"
                lines.append(f"* `{message.text.strip().replace('`', '')}`{kind}")
        lines.append("")
    return "\n".join(lines)


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "counters": counters,
    "options": options,
    "errors": errors,
    "warnings": warnings,
}

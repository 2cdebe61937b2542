"""What people read: links and anchors lead somewhere, code blocks and command lines are right, claims name what exists."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
import yaml

import tfsched
from tfsched._options import Options
from tfsched.cli import COMMANDS
from tfsched.commands.flags import CommandFlags

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
READ = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
# Their pages are made of files of the root (website/hooks.py).
OUTSIDE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def load(path: pathlib.Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(path: pathlib.Path) -> list[tuple[str, str]]:
    """(language, text) of each fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    """Without code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def anchors(text: str) -> set[str]:
    """Of the headings, as MkDocs and GitHub make them."""
    found: dict[str, int] = {}
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#{1,6} (.*)$", text, re.MULTILINE):
        words = re.sub(r"[^\w\s-]", "", heading.lower()).strip()
        found[re.sub(r"[-\s]+", "-", words)] = 1
    return set(found)


@pytest.fixture(scope="module")
def reference():
    return load(ROOT / "website" / "reference.py")


def test_links_lead_to_pages_and_headings(reference):
    texts = {path: path.read_text() for path in [*READ, ROOT / "CHANGELOG.md"]}
    # The reference of commands needs matplotlib for one of them; the test's environment has it.
    texts = {path: reference.filled(text) if path.parent == DOCS else text for path, text in texts.items()}
    known = {path: anchors(text) for path, text in texts.items()}
    wrong = []
    for path, text in texts.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
            name, _, anchor = target.partition("#")
            if name.startswith(("http://", "https://")):
                continue
            to = (path.parent / name).resolve() if name else path
            if not to.exists() or (anchor and anchor not in known.get(to, ())):
                wrong.append(f"{path.name}: {target}")
            elif to.suffix == ".md" and to not in texts:
                wrong.append(f"{path.name}: {target} is no page of the site")
    assert not wrong


def test_each_page_is_in_the_navigation_once():
    text = re.sub(r"!!python\S*", "", (ROOT / "mkdocs.yml").read_text())
    nav = yaml.safe_load(text)["nav"]

    def pages(entry) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [page for part in (entry if isinstance(entry, list) else entry.values()) for page in pages(part)]

    assert sorted(pages(nav)) == sorted([*(path.name for path in PAGES), *OUTSIDE.values()])


def test_pages_that_the_code_names_exist():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    names = files.stdout.split() or [str(path.relative_to(ROOT)) for path in ROOT.glob("tfsched/**/*.py")]
    wrong = []
    for name in names:
        if name.endswith((".py", ".h", ".cc", ".md", "Makefile", ".toml")):
            text = (ROOT / name).read_text() if (ROOT / name).exists() else ""
            wrong += [f"{name}: {page}" for page in re.findall(r"\bdocs/[\w/-]+\.md", text) if not (ROOT / page).exists()]
    assert not wrong


def after(diff: str) -> str:
    """A diff block's program after the change."""
    return "\n".join(line[1:] for line in diff.splitlines() if not line.startswith("-"))


PROGRAMS = [(path, text if kind == "python" else after(text)) for path in READ for kind, text in blocks(path)
            if kind in ("python", "diff")]  # fmt: skip


def test_code_blocks_are_programs_with_names_that_exist():
    assert len(PROGRAMS) > 30
    fields = {field.name for field in dataclasses.fields(Options)}
    for path, text in PROGRAMS:
        tree = ast.parse(text, str(path))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("tfsched."):
                exists(path, ast.unparse(node))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("tfsched.Options", "tfsched.options"):
                assert {keyword.arg for keyword in node.keywords} <= fields, (path, ast.unparse(node))


def exists(path: pathlib.Path, name: str) -> None:
    """Of a package's own names, as its __all__ lists them: nothing need be imported for that."""
    _, first, *more = re.split(r"[.(\[]", name)
    if first in ("tuning", "simulator", "grappler", "control"):
        return  # packages that a program imports by themselves
    assert first in tfsched.__all__, f"{path.name}: {name}"
    if first in ("parallel", "placement", "ordering") and more:
        listed = (ROOT / "tfsched" / first / "__init__.py").read_text().partition("__all__ = ")[2]
        assert f'"{more[0]}"' in listed, f"{path.name}: {name}"


def command_lines() -> list[tuple[pathlib.Path, str]]:
    found = []
    for path in READ:
        shown = [text for kind, text in blocks(path) if kind in ("", "sh", "bash")]
        shown += re.findall(
            r"(?:^    \S.*\n)+", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S), re.MULTILINE
        )
        for line in "\n".join(shown).replace("\\\n", " ").splitlines():
            line = re.sub(r"\s{2,}#.*| # .*", "", line.strip())
            if line.startswith("tfsched "):
                found.append((path, line))
    return found


def test_command_lines_have_flags_that_exist():
    lines = command_lines()
    assert len(lines) > 30
    for path, line in lines:
        _, name, *words = shlex.split(line)
        if name.isupper() or "..." in line or words[:1] == ["--help"]:
            continue
        assert name in COMMANDS, f"{path.name}: {line}"
        flags = CommandFlags(name)
        importlib.import_module(f"tfsched.commands.{name}").define(flags)
        flags.parse(words)


def test_claims_name_what_exists():
    text = (DOCS / "claims.md").read_text()
    named = [
        name
        for cells in re.findall(r"^\| [^|]* \| (.*) \|$", text, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", cells)
    ]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert len(named) > 60
    for name in named:
        if name.startswith("make "):
            assert name.split()[1] in targets, name
        elif name.startswith("python "):
            assert (ROOT / name.split()[1]).exists(), name
        else:
            path, _, function = name.partition("::")
            assert path.startswith("tests/") and (ROOT / path).exists(), name
            assert not function or f"\ndef {function}(" in (ROOT / path).read_text(), name


def test_warnings_are_quoted_as_the_code_says_them():
    # A sentence may be cut anywhere into literals, also with a value in between.
    said = "".join(
        re.sub(r'"\s*\n\s*(?:<<\s*)?f?"', "", path.read_text())
        for folder, kind in (("tfsched", "*.py"), ("cc", "*.cc"))
        for path in sorted((ROOT / folder).rglob(kind))
    )
    text = (DOCS / "errors.md").read_text()
    table = text[text.index("## Warnings") : text.index("## All log lines")]
    quoted = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(quoted) > 15
    assert [words for words in quoted if words.strip() not in said] == []


def test_every_variable_of_the_environment_is_described():
    text = "".join(path.read_text() for path in PAGES)
    code = "".join(path.read_text() for path in [*(ROOT / "tfsched").rglob("*.py"), *(ROOT / "cc").rglob("*.cc")])
    # What `tfsched run` tells its processes.
    own = {"TFSCHED_VARIABLES_FROM_FLAGS", "TFSCHED_LAUNCHER_FD", "TFSCHED_LAUNCHER_PID"}
    used = set(re.findall(r'"(TFSCHED_[A-Z_]+[A-Z])"', code)) - own
    assert len(used) > 12
    assert sorted(name for name in used if name not in text) == []


def test_options_are_described_with_their_defaults():
    rows = dict(re.findall(r"^\| `(\w+)` \| `[sib]` \| ([^|]+) \|", (DOCS / "configuration.md").read_text(), re.MULTILINE))
    shown = {"": "none", True: "true", False: "false"}
    assert {name: text.strip("`").replace(",", "").strip('"') for name, text in rows.items()} == {
        field.name: str(shown.get(field.default, field.default) if not isinstance(field.default, int)
                        or isinstance(field.default, bool) else field.default)
        for field in dataclasses.fields(Options)
    }  # fmt: skip


def test_the_reference_has_every_command_counter_and_error(reference):
    commands, counters, errors = reference.commands(), reference.counters(), reference.errors()
    for name, command in COMMANDS.items():
        assert f"## tfsched {name}\n" in commands and command.example in commands
    from tfsched.control.fields import FIELDS

    assert re.findall(r"^\| `(\w+)` \|", counters, re.MULTILINE) == list(FIELDS)
    assert errors.count("\n* ") > 200


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) < 700


@pytest.mark.timeout(150)
def test_the_first_program_runs(tmp_path):
    program = next(text for kind, text in blocks(DOCS / "first-steps.md") if "model.fit" in text)
    (tmp_path / "train.py").write_text(program)
    kept = {key: value for key, value in os.environ.items() if key not in ("TF_CONFIG", "TFSCHED_ADDRESSES")}
    environment = {**kept, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    expected = "worker 0 of 1: 0 gradients were exchanged"
    assert done.stdout.splitlines()[-1] == expected
    assert expected in (DOCS / "first-steps.md").read_text()

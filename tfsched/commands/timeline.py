"""``tfsched timeline``: a trace -> a picture for Perfetto."""

from __future__ import annotations

import json

from tfsched.commands.files import read_json, write_text
from tfsched.commands.flags import CommandFlags, UsageError
from tfsched.commands.quiet import import_tensorflow


def define(flags: CommandFlags) -> None:
    flags.string("out", "timeline.json", "write the timeline to this file")
    flags.boolean("quiet", False, "print nothing but errors")


def run(flags: CommandFlags, arguments: list[str]) -> int:
    if len(arguments) != 1:
        raise UsageError(f"tfsched timeline takes one trace file and got {len(arguments)}: {' '.join(arguments)}")
    import_tensorflow()
    from tfsched.tracing import StepTrace
    from tfsched.tracing.timeline import timeline

    drawn = timeline(StepTrace.from_json(read_json(arguments[0])))
    write_text(flags.out, json.dumps(drawn, allow_nan=False))
    if not flags.quiet:
        print(f"{len(drawn['traceEvents'])} events written to {flags.out}; open it in ui.perfetto.dev or chrome://tracing")
    return 0

"""What ops do, as far as their types say it: TensorFlow's, and ours that several parts know. May import nothing else.

No TensorFlow is needed to read it, so that the simulator takes a traced graph for what the rewrite takes it for.
"""

from __future__ import annotations

import re

# A read that takes the value which was sent ahead for it, what waits for that value at the reader, and what sends it
# (grappler/barrier/read_ahead.py).
READ_OP, SELECT_OP, AHEAD_OP = "TfschedRead", "TfschedSelect", "TfschedReadAhead"

# An all-reduce of one tensor that may stand behind the step's end (grappler/collectives/exchange.py).
EXCHANGE_OP = "TfschedAllReduceIfAgreed"

HANDLE_OP = "VarHandleOp"
# Reference variables are their own reads.
REFERENCES = frozenset({"Variable", "VariableV2"})

# Put out a variable's whole value, from its handle as the first input.
WHOLE_READS = frozenset({"ReadVariableOp", READ_OP, AHEAD_OP})

# What a step may do to a variable, by its handle, that leaves it as it is. (A value is sent ahead behind an update, in the
# background, and never by a step.)
READ_ONLY_USES = (WHOLE_READS - {AHEAD_OP}) | {"ResourceGather", "ResourceGatherNd"}

# Hand their first input on, value and shape, in its own buffer. What enters a loop is the same in each of its turns if it is
# a handle.
PASSING_ON = frozenset({"Identity", "StopGradient", "Snapshot", "PreventGradient", "CheckNumerics", "Enter"})

# Their output may be an input's buffer, whatever its shape: a reference variable can be seen through them.
FORWARDING = PASSING_ON | {"Reshape", "Squeeze", "ExpandDims", "Bitcast", "IdentityN"}

# Change a variable, which is always the first input.
_UPDATE = re.compile(
    r"(Resource)?(Sparse)?Apply[A-Z]|Assign((Add|Sub)?VariableOp|Add|Sub)?$|(Resource)?Scatter(?!Nd$|NdNon)[A-Z]"
)


def is_update(op: str) -> bool:
    """Whether ops of this type change the variable that is their first input."""
    return _UPDATE.match(op) is not None


def update_name(variable: str, task: str) -> str:
    """What a plan calls the push that updates a variable where the name of what is pushed may be another one."""
    return f"{variable}<-@{task}"

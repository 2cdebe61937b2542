"""What a user can choose for a session, and how it travels through a ConfigProto."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

from tfsched._rules import (
    MIN_PARTITION_BYTES,
    NEVER_WAITING,
    POLICIES,
    exchange_bytes,
    exchange_credit,
    fitting_chunks,
    fitting_credit,
)
from tfsched.errors import TfschedError

# The default of policy, partition_bytes and credit_bytes, which Options.settled() replaces. In numbers it is AUTO_BYTES.
AUTO = "auto"
AUTO_BYTES = -1
_SIZES = ("partition_bytes", "credit_bytes")

# What `tfsched run` writes into the environment of its program: the variables whose values are its flags'.
FLAGS = "TFSCHED_VARIABLES_FROM_FLAGS"
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_ORIGINS = "_origins"


def variable_of(option: str) -> str:
    """The environment variable that stands for an option: "TFSCHED_POLICY" for "policy"."""
    return f"TFSCHED_{option.upper()}"


def _completed_from_environment(cls: Any) -> Any:
    """Has a dataclass' constructor take what it is not given from the environment, and note where each value is from."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    plain: Callable[..., None] = cls.__init__

    @functools.wraps(plain)
    def __init__(self: Any, *args: Any, **given: Any) -> None:
        told = {*list(fields)[: len(args)], *given}
        texts = {name: os.environ.get(variable_of(name), "").strip() for name in fields if name not in told}
        usual = {name: _parsed(name, text, type(fields[name].default)) for name, text in texts.items() if text}
        try:
            plain(self, *args, **given, **usual)
        except TfschedError as error:
            for name in usual:
                if str(error).startswith(f"Option {name} "):
                    raise TfschedError(str(error).replace(f"Option {name}", variable_of(name), 1)) from None
            raise
        flags = os.environ.get(FLAGS, "").split(",")
        origins = dict.fromkeys(told & fields.keys(), "code")
        for name in usual:
            origins[name] = f"--{name}" if variable_of(name) in flags else variable_of(name)
        object.__setattr__(self, _ORIGINS, origins)

    cls.__init__ = __init__
    return cls


def _parsed(name: str, text: str, kind: type) -> Any:
    """The value that an environment variable stands for.

    Raises:
      TfschedError: it stands for none of that type.
    """
    if kind is bool:
        if text.lower() not in _WORDS:
            raise TfschedError(f"{variable_of(name)} is {text!r}; give true or false.")
        return _WORDS[text.lower()]
    if kind is int and not (text == AUTO and name in _SIZES):
        try:
            return int(text)
        except ValueError:
            wanted = 'a whole number or "auto"' if name in _SIZES else "a whole number"
            raise TfschedError(f"{variable_of(name)} is {text!r}; give {wanted}.") from None
    return text


@_completed_from_environment
@dataclasses.dataclass(frozen=True)
class Options:
    """How the transfers of a session are scheduled.

    A field that is not given has the value of its environment variable (``TFSCHED_POLICY`` for ``policy``), or else its
    default. Every field is also a key of the optimizer's ``parameter_map``, for those who write the ConfigProto themselves.

    Raises:
      TfschedError: a field or a variable has a value that it cannot have.

    Attributes:
      ordering: name of a registered ordering (``tfsched.ordering.names()``), or "none" to leave the graph alone.
      policy: "auto" is "bytescheduler" with ``barrier=False`` and where gradients are all-reduced, "tictac" else. "tictac"
        sends in the ordering's sequence and waits a moment for what is missing in it. "bytescheduler" sends the first of
        what is there, over all steps, while it fits into the credit. "p3" does so one at a time, whatever the credit.
        "prophet" does as "bytescheduler", and holds back what would be in the way of a more urgent tensor that the last
        steps predict. "fifo" sends as tensors become ready, whatever the credit. docs/policies.md says when to choose which.
      credit_bytes: bytes that may be handed to gRPC and not yet be written; 0 means no limit. "auto" (stored as -1) is
        two pieces, and 1,000,000 at least; one piece where "auto" pieces of servers fit a link below 1.5 Gbit/s.
      partition_bytes: ordered transfers of more bytes than that leave in chunks of at most that many; 0 never cuts any.
        "auto" (stored as -1) is 250,000 to 4,000,000 with ``barrier=False``, larger ones on faster links (measured before
        the first step) and for several workers, and 0 else and under "tictac" and "fifo". All-reduces have 0 and "auto"
        replaced by a size that fits the link and the number of workers. A plan's own sizes win.
      plan: path of a Plan file (anything ``tf.io.gfile`` reads), or its JSON text. Its priorities win over ``ordering``,
        which then only orders transfers that the plan does not name. "" for none.
      plugin: path of a Python file that registers orderings, imported where the pass runs, if TFSCHED_ALLOW_PLUGINS in that
        process's environment permits it. "" for none.
      seed: for orderings that draw random numbers.
      barrier: True ends a step when its updates are applied, as TensorFlow does. False ends it when its gradients exist:
        they are pushed and applied in the background, and the next step reads each variable behind its own update, so the
        values stay the same. docs/across-the-barrier.md says what keeps the barrier.
      strict: fail the step with the reason where the pass would otherwise step aside and warn once.
    """

    ordering: str = "tio"
    policy: str = AUTO
    credit_bytes: int = AUTO_BYTES
    partition_bytes: int = AUTO_BYTES
    plan: str = ""
    plugin: str = ""
    seed: int = 0
    barrier: bool = True
    strict: bool = False

    def __post_init__(self) -> None:
        if self.plan is None:
            object.__setattr__(self, "plan", "")
        for name in _SIZES:
            if getattr(self, name) == AUTO:
                object.__setattr__(self, name, AUTO_BYTES)
        for field in dataclasses.fields(self):
            value, kind = getattr(self, field.name), type(field.default)
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                raise TfschedError(f"Option {field.name} is {value!r}; give a value of type {kind.__name__}.")
        if not self.ordering:
            raise TfschedError('Option ordering is empty; name an ordering, or "none".')
        if self.policy not in (AUTO, *POLICIES):
            raise TfschedError(f"Option policy is {self.policy!r}; choose one of {', '.join((AUTO, *POLICIES))}.")
        if self.credit_bytes < AUTO_BYTES:
            raise TfschedError(f'Option credit_bytes is {self.credit_bytes}; give "auto", 0 (no limit) or more.')
        if self.partition_bytes < AUTO_BYTES or 0 < self.partition_bytes < MIN_PARTITION_BYTES:
            raise TfschedError(
                f'Option partition_bytes is {self.partition_bytes}; give "auto", 0 (never cut), or {MIN_PARTITION_BYTES} or '
                "more."
            )

    def settled(self, link_bps: float = 0, workers: int = 1) -> Options:
        """The options with what "auto" stands for on a link of so many bits per second (0: not known), with so many workers
        at the servers."""
        policy, partition_bytes, credit_bytes = self.policy, self.partition_bytes, self.credit_bytes
        if policy == AUTO:
            policy = "tictac" if self.barrier else "bytescheduler"
        fitting = None
        if self.follows_link:
            partition_bytes, fitting = fitting_chunks(link_bps, workers)
        partition_bytes = max(partition_bytes, 0)
        if credit_bytes == AUTO_BYTES:
            credit_bytes = fitting or fitting_credit(partition_bytes)
        settled = (policy, partition_bytes, credit_bytes)
        if settled == (self.policy, self.partition_bytes, self.credit_bytes):
            return self
        return dataclasses.replace(self, policy=policy, partition_bytes=partition_bytes, credit_bytes=credit_bytes)

    def all_reducing(self, workers: int, link_bps: float = 0) -> tuple[int, int]:
        """Pieces and credit in bytes of so many workers' all-reduces, on links of so many bits per second; 0: not known."""
        piece_bytes = self.partition_bytes if self.partition_bytes > 0 else exchange_bytes(workers, link_bps)
        if self.credit_bytes != AUTO_BYTES:
            return piece_bytes, self.credit_bytes
        # Of pieces larger than those that fit the link one goes alone, as cc/collective/choice.cc has it.
        return piece_bytes, exchange_credit(workers, min(piece_bytes, exchange_bytes(workers, link_bps)))

    @property
    def never_waits(self) -> bool:
        """Whether the policy, which is not "auto", never waits for a transfer that is missing."""
        return self.policy in NEVER_WAITING

    @property
    def follows_link(self) -> bool:
        """Whether the pieces of what servers send depend on how fast the link is."""
        return self.partition_bytes == AUTO_BYTES and not self.barrier and (self.policy == AUTO or self.never_waits)

    def to_parameters(self) -> dict[str, Any]:
        """The fields that differ from their default, plus the ordering: what goes into a parameter map."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name == "ordering" or getattr(self, field.name) != field.default
        }

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Options:
        """Builds options from a parameter map's values. The environment has no part in it: what is missing has its default.

        Raises:
          TfschedError: on a key or a value that is not one of the fields'.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        for key in parameters:
            if key not in known:
                raise TfschedError(f"{key!r} is not a parameter of tfsched; the parameters are {', '.join(sorted(known))}.")
        return cls(**{**DEFAULTS, **parameters})

    def describe(self) -> str:
        """The main options and those that are not the default, each with where it is from: code, a flag, a variable."""
        origins = getattr(self, _ORIGINS, {})
        parts = []
        for name, default in DEFAULTS.items():
            value = getattr(self, name)
            if value != default or name in origins or name in _MAIN:
                shown = AUTO if value == AUTO_BYTES and name in _SIZES else value
                shown = shown if len(str(shown)) <= _SHOWN else f"{str(shown)[:_SHOWN]}..."
                parts.append(f"{name}={shown} ({origins.get(name, 'default')})")
        return ", ".join(parts)


DEFAULTS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(Options)}
VARIABLES = {variable_of(name): name for name in DEFAULTS}
_MAIN = ("ordering", "policy", "barrier")
_SHOWN = 80

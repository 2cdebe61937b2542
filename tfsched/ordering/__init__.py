"""Orderings of transfers: from a DAG and op times to priorities. May import numpy, ortools and tfsched._rules, no
TensorFlow.

A strategy is one file: a function of (dag, times_us, seed) decorated with `register("name")`.
"""

from . import buckets as _buckets  # noqa: F401  (importing a strategy registers it)
from . import bytescheduler as _bytescheduler  # noqa: F401
from . import dear as _dear  # noqa: F401
from . import dynacomm as _dynacomm  # noqa: F401
from . import exact as _exact  # noqa: F401
from . import fifo as _fifo  # noqa: F401
from . import layer as _layer  # noqa: F401
from . import lookahead as _lookahead  # noqa: F401
from . import mg_wfbp as _mg_wfbp  # noqa: F401
from . import optimal as _optimal  # noqa: F401
from . import p3 as _p3  # noqa: F401
from . import pace as _pace  # noqa: F401
from . import prophet as _prophet  # noqa: F401
from . import random_order as _random_order  # noqa: F401
from . import tao as _tao  # noqa: F401
from . import tio as _tio  # noqa: F401
from . import us_byte as _us_byte  # noqa: F401
from .dag import Dag, DagError, Op, Resource, with_link
from .decision import Decision, Message, Part
from .evaluate import evaluate
from .exchanges import AllReduce, exchange_dag
from .makespan import Schedule, list_schedule
from .metrics import (
    MetricError,
    efficiency,
    lower_bound_us,
    normalized_step_times,
    percentile,
    r_squared,
    speedup,
    straggler_effect,
    straggler_effects,
    upper_bound_us,
)
from .oracle import OracleError, TimeOracle, general_time
from .plan import Plan, PlanError, combined, make_plan
from .registry import Ordering, OrderingError, get, load_plugin, names, register
from .regret import least_regret

__all__ = [
    "AllReduce",
    "Dag",
    "DagError",
    "Decision",
    "Message",
    "MetricError",
    "Op",
    "OracleError",
    "Ordering",
    "OrderingError",
    "Part",
    "Plan",
    "PlanError",
    "Resource",
    "Schedule",
    "TimeOracle",
    "combined",
    "efficiency",
    "evaluate",
    "exchange_dag",
    "general_time",
    "get",
    "least_regret",
    "list_schedule",
    "load_plugin",
    "lower_bound_us",
    "make_plan",
    "names",
    "normalized_step_times",
    "percentile",
    "r_squared",
    "register",
    "speedup",
    "straggler_effect",
    "straggler_effects",
    "upper_bound_us",
    "with_link",
]

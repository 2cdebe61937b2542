"""Simulates training steps on a described cluster. May import numpy, yaml, tfsched.ordering, _rules, graph_ops
and errors, no TensorFlow.

The scheduling policies are those of cc/core, driven through a virtual clock (docs/simulator.md).
"""

from .cluster import Cluster
from .errors import SimulatorError
from .from_dag import workload_of_dag
from .from_trace import update_us_per_mb_of_trace, workload_of_trace
from .jobs import Alone, Beside, Control, Job, Jobs
from .method import Method, methods
from .result import Result, Segment, Span
from .simulate import simulate
from .workload import ComputeOp, Parameter, Workload

__all__ = [
    "Alone",
    "Beside",
    "Cluster",
    "ComputeOp",
    "Control",
    "Job",
    "Jobs",
    "Method",
    "Parameter",
    "Result",
    "Segment",
    "SimulatorError",
    "Span",
    "Workload",
    "methods",
    "simulate",
    "update_us_per_mb_of_trace",
    "workload_of_dag",
    "workload_of_trace",
]

"""Step traces: recording them, and what is made of them.

May import TensorFlow, tfsched.ordering, tfsched.grappler and tfsched.ops.
"""

from tfsched.tracing.function_tracer import trace_function
from tfsched.tracing.step_trace import StepTrace, TracedStep, TraceError, load_trace, plan_from_trace
from tfsched.tracing.tracer import trace_steps

__all__ = ["StepTrace", "TraceError", "TracedStep", "load_trace", "plan_from_trace", "trace_function", "trace_steps"]

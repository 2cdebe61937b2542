"""Tunes a training that runs: measures its steps, tries settings between them, keeps what is faster than the first one.

May import TensorFlow, tuning, eager, grappler, control, ops, _options, _rules, _callback and errors.
"""

"""The graph rewrite. May import TensorFlow's protos, tfsched.ordering, _options, _rules, graph_ops and ops.library."""

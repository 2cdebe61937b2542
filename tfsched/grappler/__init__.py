"""The graph rewrite. May import TensorFlow's protos, tfsched.ordering, tfsched._options and tfsched.ops.library."""

"""The graph rewrite. May import TensorFlow's protos, tfsched.ordering, tfsched.options and tfsched.ops.library."""

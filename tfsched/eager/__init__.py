"""tf.function and coordinators. May import TensorFlow, absl, and tfsched's server, grappler, ops, _options and errors."""

"""The native library: loading it and calling its ops. May import TensorFlow and tfsched.errors, nothing else of tfsched."""

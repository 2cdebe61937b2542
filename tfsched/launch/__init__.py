"""`tfsched run`: what switches tfsched on in an unmodified program, and the local processes of such programs.

May import TensorFlow (in `patches.py` only), wrapt, and what a program of a user's would import of tfsched.
"""

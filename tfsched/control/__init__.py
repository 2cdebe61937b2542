"""What a running process tells of its schedulers: the control service, metrics, scalars, warnings. Nothing is changed here.

May import ops, errors, version and _callback; grpcio, protobuf, prometheus_client and TensorFlow inside single files.
"""

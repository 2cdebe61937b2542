"""A directory for PYTHONPATH: Python imports the sitecustomize in it before it runs a program."""

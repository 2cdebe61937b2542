"""Where the tasks of the bench run: on this machine, or on others that ssh, Slurm or the user reaches.

`base.py` is the interface. `local.py`, `over_ssh.py`, `slurm.py` and `started.py` are the ways, `find.py` chooses one.
May import of the bench: errors, links, pinning, settings, testbed; and yaml.
"""

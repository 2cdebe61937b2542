"""Changes of running schedulers, asked for from inside of a task."""

import tfsched


def change(task, session=None, target=None, on=None, **values):
    """tfsched.configure() with the session of that name, the target, or for this process: [reached, skipped]."""
    where = task.state[session].session if session else target
    result = tfsched.configure(where, task=on, **values)
    return [list(result.reached), result.skipped]

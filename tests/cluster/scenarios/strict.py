"""Sessions whose options the pass cannot carry out."""

from . import common


def train(task, options, count):
    """Opens a session, trains and closes it; returns the losses."""
    common.open_session(task, options=options, init=False, layers=3, width=64)
    model = task.state["main"]
    # Initialisation is not what is asked about; a stock session does it.
    with common.v1.Session(task.target, graph=model.graph) as session:
        session.run(model.init)
    try:
        return common.run(task, count=count)
    finally:
        model.session.close()

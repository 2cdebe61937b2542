"""DAGs for tests: hypothesis strategies, and the paper's figures."""

from __future__ import annotations

from hypothesis import strategies as st

from tfsched.ordering.dag import Dag, Op, Resource

COMPUTE = Resource("cpu", "compute")


def build(*ops: tuple[str, str, float, str], links: int = 1) -> Dag:
    """Build a Dag from (name, "cpu" or link number, time in µs, inputs separated by spaces)."""
    resources = [COMPUTE, *(Resource(f"link{i}", "link", 1e9) for i in range(links))]
    return Dag(
        resources,
        [
            Op(name, where if where == "cpu" else f"link{where}", tuple(inputs.split()), float(t))
            for name, where, t, inputs in ops
        ],
    )


def figure_2a() -> Dag:
    """recv1 -> op1, (op1, recv2) -> op2: every time is 1 µs."""
    return build(
        ("recv1", "0", 1, ""), ("recv2", "0", 1, ""), ("op1", "cpu", 1, "recv1"),
        ("op2", "cpu", 1, "op1 recv2"),
    )  # fmt: skip


def figure_4a(m_a: float, p_a: float, m_b: float, p_b: float) -> Dag:
    """Case 1: two recvs, each activating a computation of its own."""
    return build(
        ("A", "0", m_a, ""), ("B", "0", m_b, ""), ("op_A", "cpu", p_a, "A"),
        ("op_B", "cpu", p_b, "B"),
    )  # fmt: skip


def figure_4b() -> Dag:
    """Case 2: A and B activate op1, C op2 after it, D op3 after that; listed in reverse."""
    return build(
        ("D", "0", 3, ""), ("C", "0", 3, ""), ("B", "0", 3, ""), ("A", "0", 3, ""),
        ("op1", "cpu", 2, "A B"), ("op2", "cpu", 2, "op1 C"), ("op3", "cpu", 2, "op2 D"),
    )  # fmt: skip


def chain(layers: int, recv_us: float = 10.0, op_us: float = 10.0) -> Dag:
    """A sequential model: op k needs op k-1 and recv k."""
    ops = [(f"recv{k}", "0", recv_us, "") for k in range(layers)]
    for k in range(layers):
        ops.append((f"op{k}", "cpu", op_us, f"recv{k}" + (f" op{k - 1}" if k else "")))
    return build(*ops)


# Few distinct values, so that ties are common; the fractions round to whole ns and to 0 ns.
_TIMES_US = st.sampled_from([0.0, 0.0001, 0.3, 1.0, 1.0, 2.0, 2.5, 3.0, 7.0, 10.0])


@st.composite
def random_dags(
    draw: st.DrawFn,
    max_ops: int = 24,
    recv_inputs: bool = True,
    times_us: st.SearchStrategy[float] = _TIMES_US,
) -> Dag:
    """Draw a dag with 1-3 links in any file order, disconnected recvs and recvs with inputs."""
    links = draw(st.integers(1, 3))
    size = draw(st.integers(1, max_ops))
    ops: list[tuple[str, str, float, str]] = []
    for i in range(size):
        is_recv = draw(st.booleans())
        inputs: list[int] = []
        if i and (not is_recv or (recv_inputs and draw(st.integers(0, 3)) == 0)):
            inputs = draw(st.lists(st.integers(0, i - 1), max_size=3))
        where = str(draw(st.integers(0, links - 1))) if is_recv else "cpu"
        ops.append((f"n{i}", where, draw(times_us), " ".join(f"n{j}" for j in inputs)))
    return build(*draw(st.permutations(ops)), links=links)

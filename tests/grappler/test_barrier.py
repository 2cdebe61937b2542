"""What the cut moves into the background and what it leaves in the step, and why."""

import pytest
import tensorflow as tf
from graphs import PS0, PS1, WORKER, canonical, copy
from tensorflow.core.framework import node_def_pb2
from tensorflow.core.protobuf import rewriter_config_pb2
from tensorflow.python.framework import op_def_registry

import tfsched
from tfsched._options import Options
from tfsched.grappler.rewrite import rewrite

tf1 = tf.compat.v1
HOME = WORKER.rpartition("/device")[0]
WORKER2 = WORKER.replace("task:0", "task:1")
CROSS = Options(barrier=False)


@pytest.fixture(autouse=True, scope="module")
def _library():
    tfsched.load()


class Step:
    """A small training step, placed by hand: two layers, w0 on the first parameter server and w1 on the second."""

    def __init__(self, use_resource=True, side=8, servers=(PS0, PS1)):
        self.side = side
        self.graph = tf.Graph()
        self.enter = self.graph.as_default()
        self.enter.__enter__()
        self.variables = []
        for number, device in enumerate(servers):
            with tf.device(device):
                self.variables.append(
                    tf1.get_variable(
                        f"w{number}", [side, side], initializer=tf1.ones_initializer(), use_resource=use_resource
                    )
                )
        self.loss, self.gradients = self.tower(WORKER)

    def tower(self, device):
        with tf.device(device):
            hidden = tf1.placeholder_with_default(tf.ones([2, self.side]), [2, self.side])
            for variable in self.variables:
                with tf.device(variable.device):
                    if variable.dtype._is_ref_dtype:
                        value = tf.identity(variable)
                    else:  # bare, as it is when Grappler has taken the identities out
                        value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=tf.float32)
                hidden = tf.tanh(hidden @ value)
            loss = tf.reduce_mean(hidden)
            return loss, tf.gradients(loss, self.variables)

    def apply(self, gradients=None, optimizer=None):
        optimizer = optimizer or tf1.train.GradientDescentOptimizer(0.1)
        gradients = self.gradients if gradients is None else gradients
        return optimizer.apply_gradients(zip(gradients, self.variables, strict=True))

    def cut(self, *fetches, options=CROSS, **more):
        """Placed as the placer would, rewritten for the fetches; (GraphDef, report, the background function's nodes)."""
        self.enter.__exit__(None, None, None)
        graph = self.graph.as_graph_def()
        of_variable = {}
        for node in graph.node:
            if node.op == "VarHandleOp":
                of_variable[node.name] = node.device
        for node in graph.node:
            if node.input and node.input[0] in of_variable:
                node.device = of_variable[node.input[0]]
            node.device = node.device or WORKER
        self.placed = copy(graph)
        self.runs = {
            node.name
            for node in tf1.graph_util.extract_sub_graph(
                graph, [f.op.name if hasattr(f, "op") else f.name for f in fetches]
            ).node
        }
        self.fetches = [fetch.name for fetch in fetches]
        result, report = rewrite(graph, options, self.fetches, **{"home": HOME, **more})
        body = [update_of(node) for function in result.library.function for node in function.node_def] if result else []
        return result, report, {node.name: node for node in body}


def update_of(node):
    """The update that a node of the background function runs, with the node's inputs; any other node itself."""
    if node.op != "TfschedUpdate":
        return node
    update = node_def_pb2.NodeDef.FromString(node.attr["node"].s)
    assert update.name == node.name and update.device == node.device
    assert len(update.input) == len(node.attr["Targs"].list.type)
    update.input[:] = node.input
    return update


def ops(nodes):
    return sorted(node.op for node in (nodes.values() if isinstance(nodes, dict) else nodes))


def test_plain_step():
    step = Step()
    result, report, body = step.cut(step.loss, step.apply())
    assert sorted(report.crossing) == ["w0", "w1"] and report.kept == {}
    assert report.home == WORKER.rpartition("/device")[0]
    assert ops(body).count("ResourceApplyGradientDescent") == 2
    assert all(node.attr["use_locking"].b for node in body.values() if node.op.startswith("ResourceApply"))
    assert {node.device for node in body.values() if node.op == "TfschedTake"} == {WORKER}
    assert not any(node.op.startswith("ResourceApply") for node in result.node)
    (call,) = (node for node in result.node if node.op == "TfschedBackgroundCall")
    assert call.attr["f"].func.name in {function.signature.name for function in result.library.function}
    # The step still has what was named, so that fetches and control edges find it.
    names = {node.name for node in result.node}
    assert {node.name for node in step.placed.node} <= names


def test_again_changes_nothing():
    step = Step()
    result, _, _ = step.cut(step.loss, step.apply())
    again, report = rewrite(copy(result), CROSS, step.fetches, home=HOME)
    assert canonical(again) == canonical(result)
    assert len(again.library.function) == len(result.library.function)
    assert report.kept == {}


def test_an_update_keeps_its_failure_to_itself():
    step = Step()
    result, _, _ = step.cut(step.loss, step.apply(optimizer=tf1.train.MomentumOptimizer(0.1, 0.9)))
    (function,) = result.library.function
    nodes = {node.name: node for node in function.node_def}
    updates = {name: node for name, node in nodes.items() if node.op == "TfschedUpdate"}
    assert len(updates) == 2
    for node in updates.values():
        types = list(node.attr["Targs"].list.type)
        assert types == [tf.resource.as_datatype_enum] * 2 + [tf.float32.as_datatype_enum] * 3
        assert len([text for text in node.input if not text.startswith("^")]) == len(types)
    # Each parameter server says what has failed, and the home fails when it has heard them all.
    firsts = [node for node in nodes.values() if node.op == "TfschedFirstError"]
    assert sorted(node.device for node in firsts) == [PS0, PS1]
    assert {text.partition(":")[0] for node in firsts for text in node.input} == set(updates)
    (verdict,) = (node for node in nodes.values() if node.op == "TfschedVerdict")
    assert verdict.device == WORKER
    token, *errors = (text.partition(":")[0] for text in verdict.input)
    assert token == function.signature.input_arg[0].name
    assert set(errors) == {node.name for node in firsts}
    assert verdict.name in function.control_ret.values()


def test_steps_of_one_session_share_no_kernel_that_does_something_else():
    """TensorFlow finds the kernel of a stateful op by the session and the node's name alone."""
    options = Options(barrier=False, ordering="none")  # without proxies, which are stateless
    both = Step()
    results = [both.cut(both.apply(), options=options)[0]]
    second = Step()
    results.append(second.cut(second.apply([None, second.gradients[1]]), options=options)[0])
    attributes = {}
    for result in results:
        for node in result.node:
            if node.op.startswith("Tfsched"):
                seen = attributes.setdefault(node.name, {})
                for key, value in node.attr.items():
                    assert seen.setdefault(key, value) == value, f"{node.name}: {key}"
    # The two steps hand over different gradients, so more than one call and more than one set of Puts must have names.
    assert sum("/call/" in name for name in attributes) == 2


def test_every_use_of_a_variable_waits():
    step = Step()
    result, _, _ = step.cut(step.loss, step.apply())
    waits = {node.name for node in result.node if node.op == "TfschedWait"}
    assert len(waits) == 2
    for node in result.node:
        if node.op == "ReadVariableOp" and node.name in step.runs:
            assert len(waits.intersection(name.lstrip("^") for name in node.input)) == 1


def test_the_average_of_two_workers_moves():
    step = Step()
    _, second = step.tower(WORKER2)
    averaged = []
    for pair, variable in zip(zip(step.gradients, second, strict=True), step.variables, strict=True):
        with tf.device(variable.device):
            averaged.append(tf.add_n(pair) / 2.0)
    result, report, body = step.cut(step.loss, step.apply(averaged))
    assert sorted(report.crossing) == ["w0", "w1"]
    assert ops(body).count("AddN") == 2
    takes = [node.device for node in body.values() if node.op == "TfschedTake"]
    assert sorted(takes) == [WORKER] * 2 + [WORKER2] * 2
    assert sum(node.op == "TfschedOpen" for node in result.node) == 2


def test_clipping_by_global_norm_stays_on_the_worker():
    step = Step()
    with tf.device(WORKER):
        clipped, _ = tf.clip_by_global_norm(step.gradients, 1.0)
    _, report, body = step.cut(step.loss, step.apply(clipped))
    assert sorted(report.crossing) == ["w0", "w1"]
    assert "L2Loss" not in ops(body)


def test_learning_rate_and_powers_are_handed_over_where_they_are():
    step = Step()
    result, report, body = step.cut(step.loss, step.apply(optimizer=tf1.train.AdamOptimizer(0.1)))
    assert {"w0", "w1", "w0/Adam", "w0/Adam_1", "w1/Adam", "w1/Adam_1"} == set(report.crossing)
    assert any(node.op == "TfschedTake" and node.device in (PS0, PS1) for node in body.values())
    # beta1_power and beta2_power are multiplied in the step, behind the hand-over.
    assigns = [node for node in result.node if node.op == "AssignVariableOp" and "power" in node.input[0]]
    assert assigns


def test_fetched_gradients_stay():
    step = Step()
    result, report, _ = step.cut(step.loss, *step.gradients, step.apply())
    assert sorted(report.crossing) == ["w0", "w1"]
    assert {gradient.op.name for gradient in step.gradients} <= {node.name for node in result.node}


def test_the_background_function_is_left_alone():
    """Grappler hands functions to the pass like graphs; their ranks come from the step, which the function does not show."""
    step = Step()
    result, _, _ = step.cut(step.loss, step.apply(), options=Options(barrier=False, policy="bytescheduler"))
    (function,) = result.library.function
    graph = tf1.GraphDef()
    graph.library.CopyFrom(result.library)
    graph.node.extend(function.node_def)
    assert any(node.op == "TfschedProxy" for node in graph.node)
    again, _ = rewrite(graph, Options(barrier=False, policy="bytescheduler"))
    assert again is None


def test_values_go_ahead_in_the_order_of_the_pulls():
    step = Step(side=48)
    result, report, body = step.cut(step.loss, step.apply(), options=Options(barrier=False, policy="bytescheduler"))
    assert report.pushes >= 4
    ranks = {node.attr["transfer"].s.decode(): node.attr["rank"].i for node in body.values() if node.op == "TfschedProxy"}
    ahead = [rank for name, rank in ranks.items() if "/ahead/" in name]
    assert len(ahead) == 2
    reads = [node for node in result.node if node.op == "TfschedRead"]
    assert len(reads) == 2 and sum(node.op == "TfschedSelect" for node in result.node) == 2
    assert all(any(text.startswith("^tfsched/barrier/wait") for text in node.input) for node in reads)


class ShardedStep(Step):
    """Of the last layer, two shards are on the server."""

    def tower(self, device):
        *whole, upper, lower = self.variables
        with tf.device(device):
            hidden = tf1.placeholder_with_default(tf.ones([2, self.side]), [2, self.side])
            for shards in (*([one] for one in whole), [upper, lower]):
                values = []
                for shard in shards:
                    with tf.device(shard.device):
                        values.append(tf.raw_ops.ReadVariableOp(resource=shard.handle, dtype=tf.float32))
                hidden = tf.tanh(hidden @ (tf.concat(values, axis=1) if len(values) > 1 else values[0]))
            loss = tf.reduce_mean(hidden)
            return loss, tf.gradients(loss, self.variables)


@pytest.mark.parametrize("barrier", [True, False])
def test_shards_have_their_variables_place_in_the_order(barrier):
    """Across the barrier, too, where the shards that are joined are values that were sent ahead."""
    step = ShardedStep(side=48, servers=(PS0,) * 5)
    result, _, _ = step.cut(step.loss, step.apply(), options=Options(barrier=barrier, policy="bytescheduler"))
    reads = [node for node in result.node if node.op == ("ReadVariableOp" if barrier else "TfschedRead")]
    variable_of = {node.name: node.input[0] for node in reads}
    proxies = [node for node in result.node if node.op == "TfschedProxy"]
    rank_of = {variable_of[source]: node.attr["rank"].i for node in proxies if (source := node.input[0]) in variable_of}
    assert sorted(rank_of, key=rank_of.get) == [f"w{number}" for number in range(5)]


@pytest.mark.parametrize("side", [45, 46])
def test_small_values_are_read_when_they_are_asked_for(side):
    """8,100 bytes are, 8,464 are not."""
    step = Step(side=side)
    result, _, body = step.cut(step.loss, step.apply())
    ahead = 0 if side == 45 else 2
    assert sum(node.op == "TfschedRead" for node in result.node) == ahead
    assert sum(node.op == "TfschedReadAhead" for node in body.values()) == ahead


def test_what_was_sent_ahead_is_trusted_by_its_token():
    """Each read takes the committed token, from home; a Notify does not wait until the value has arrived."""
    step = Step(side=48)
    result, report, body = step.cut(step.loss, step.apply())
    (committed,) = (node for node in result.node if node.op == "TfschedCommitted")
    assert committed.device.startswith(report.home)
    reads = [node for node in result.node if node.op == "TfschedRead"]
    assert reads and all(node.input[1] == committed.name for node in reads)
    notifies = [node for node in body.values() if node.op == "TfschedNotify"]
    assert notifies and all(any(text.startswith("^tfsched/barrier/ahead") for text in node.input) for node in notifies)
    assert not any("/stock" in text for node in notifies for text in node.input)


def test_the_step_ends_at_home():
    step = Step()
    result, report, _ = step.cut(step.loss, step.apply())
    ends = [node for node in result.node if node.op == "NoOp" and any("tfsched/barrier/join" in i for i in node.input)]
    assert len(ends) == 2
    (group,) = (node for node in result.node if node.name == step.fetches[1])
    assert all(node.device.startswith(report.home) for node in [*ends, group])


# --- what keeps the barrier ---


def test_sparse_gradient_keeps_it():
    step = Step()
    with tf.device(PS0):
        table = tf1.get_variable("table", [16, 8], initializer=tf1.ones_initializer(), use_resource=True)
    with tf.device(WORKER):
        loss = step.loss + tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, [1, 2])))
        gradient = tf.gradients(loss, table)
    train = tf1.train.GradientDescentOptimizer(0.1).apply_gradients(zip(gradient, [table], strict=True))
    _, report, _ = step.cut(loss, step.apply(), train)
    assert sorted(report.crossing) == ["w0", "w1"]
    assert report.kept == {"table": "its gradient is sparse"}


def test_reference_variables_keep_it():
    step = Step(use_resource=False)
    _, report, _ = step.cut(step.loss, step.apply())
    assert report.crossing == []
    assert set(report.kept) == {"w0", "w1"}
    assert all("reference variable" in reason for reason in report.kept.values())


def test_a_value_after_the_update_keeps_it():
    step = Step()
    train = step.apply()
    with tf.control_dependencies([train]), tf.device(PS0):
        after = step.variables[0].read_value() * 2.0
    _, report, _ = step.cut(step.loss, after)
    assert report.crossing == ["w1"]
    assert report.kept == {"w0": "its value is used after the update"}


def test_a_branch_keeps_it():
    step = Step()
    with tf.device(PS0):
        chosen, _ = tf.raw_ops.Switch(data=step.gradients[0], pred=tf.constant(True))[::-1]
        train = tf.raw_ops.ResourceApplyGradientDescent(var=step.variables[0].handle, alpha=0.1, delta=chosen)
    with tf.device(PS1):
        other = tf.raw_ops.ResourceApplyGradientDescent(var=step.variables[1].handle, alpha=0.1, delta=step.gradients[1])
    _, report, _ = step.cut(step.loss, train, other)
    assert report.crossing == ["w1"]
    assert report.kept == {"w0": "its update is in a loop or a branch"}


def test_what_others_wait_for_keeps_it():
    step = Step()
    with tf.device(PS0):
        mean = tf1.get_variable("average", [8], initializer=tf1.zeros_initializer(), use_resource=True)
    with tf.device(WORKER):
        seen = tf.reduce_mean(step.variables[0].read_value(), 0)
    with tf.device(PS0):
        average = mean.assign(seen, read_value=False)
    with tf.control_dependencies([average]), tf.device(WORKER):
        gradients = [tf.identity(gradient) for gradient in step.gradients]
    _, report, _ = step.cut(step.loss, step.apply(gradients))
    assert sorted(report.crossing) == ["w0", "w1"]
    assert report.kept == {"average": "others wait for its update"}


def test_two_writes_keep_it():
    step = Step()
    with tf.device(PS0):
        twice = step.variables[0].assign_add(tf.ones([8, 8]), read_value=False)
    _, report, _ = step.cut(step.loss, step.apply(), twice)
    assert report.crossing == ["w1"]
    assert report.kept == {"w0": "the step writes it more than once"}


def test_a_task_without_tfsched_keeps_it():
    step = Step()
    capable = {device.rpartition("/device")[0] for device in (PS0, WORKER)}
    result, report, body = step.cut(step.loss, step.apply(), capable=capable)
    assert report.crossing == ["w0"]
    assert report.kept == {"w1": "it is on a task without tfsched"}
    assert not any(node.op.startswith("Tfsched") and node.device == PS1 for node in [*result.node, *body.values()])


# --- what is no training ---


def test_initialisers_wait_like_any_other_graph():
    step = Step()
    result, report, _ = step.cut(tf1.global_variables_initializer())
    assert report.waits and report.kept == {} and report.crossing == []
    assert not any(node.op == "TfschedBackgroundCall" for node in result.node)


def test_a_fed_value_is_assigned_within_the_step():
    step = Step()
    with tf.device(WORKER):
        given = tf1.placeholder(tf.float32, [8, 8])
    with tf.device(PS0):
        assign = step.variables[0].assign(given, read_value=False)
    _, report, _ = step.cut(assign)
    assert report.crossing == [] and report.kept == {}


def test_other_steps_wait_for_their_variables_and_for_their_client():
    step = Step()
    result, report, _ = step.cut(step.loss, options=Options(barrier=False, ordering="none"), client="me")
    assert report.waits
    (drain,) = (node for node in result.node if node.op == "TfschedDrain")
    assert drain.device == WORKER and drain.attr["client"].s.decode() == f"me@{HOME}"
    waits = {node.device: node for node in result.node if node.op == "TfschedWait"}
    assert set(waits) == {PS0, PS1} and {wait.attr["client"].s for wait in waits.values()} == {b""}
    nodes = {node.name: node for node in result.node}
    for variable in step.variables:
        handle = nodes[variable.op.name]
        wait = waits[handle.device]
        assert {"^" + drain.name, "^" + wait.name} <= set(handle.input)
        (own,) = (nodes[name] for name in wait.input)
        assert own.op == "VarHandleOp" and own.attr["shared_name"].s.decode() == variable.op.name and not own.input
    assert "^" + drain.name in nodes[step.loss.op.name].input
    again, _ = rewrite(copy(result), CROSS, step.fetches, home=HOME, client="me")
    assert sum(node.op == "TfschedDrain" for node in (again or result).node) == 1


def test_a_session_with_the_barrier_waits_for_the_updates_of_others_and_drains_nothing():
    step = Step()
    result, report, _ = step.cut(step.loss, options=Options(ordering="none"), client="me")
    assert report.waits and not any(node.op == "TfschedDrain" for node in result.node)
    assert sum(node.op == "TfschedWait" for node in result.node) == 2


@pytest.mark.parametrize("barrier", [True, False])
def test_only_who_crosses_the_barrier_does_not_wait_for_those_who_train_elsewhere(barrier):
    step = Step()
    options = Options(ordering="none", barrier=barrier)
    result, report, _ = step.cut(step.apply(), options=options, client="program+me")
    assert report.waits == barrier
    waits = {node.attr["client"].s.decode() for node in result.node if node.op == "TfschedWait"}
    assert waits == {"" if barrier else f"program+me@{HOME}"}


def test_where_there_is_one_task_nothing_waits():
    step = Step()
    result, report, _ = step.cut(step.loss, options=Options(ordering="none"), capable={HOME})
    assert result is None and not report.waits


def test_without_a_home_nothing_crosses():
    step = Step()
    result, report, _ = step.cut(step.apply(), home="", options=Options(barrier=False, ordering="none"))
    assert result is None and report.crossing == [] and not report.waits


def test_options_travel_through_the_config():
    config = tfsched.session_config(CROSS)
    (one,) = config.graph_options.rewrite_options.custom_optimizers
    assert isinstance(one, rewriter_config_pb2.RewriterConfig.CustomGraphOptimizer)
    assert one.parameter_map["barrier"].b is False and one.parameter_map["client"].s
    other = tfsched.session_config(CROSS).graph_options.rewrite_options.custom_optimizers[0]
    names = [each.parameter_map["client"].s.decode().split("+") for each in (one, other)]
    assert names[0][0] == names[1][0] and names[0][1] != names[1][1]
    with pytest.raises(tfsched.TfschedError, match="isolate_session_state"):
        tfsched.session_config(CROSS, tf1.ConfigProto(isolate_session_state=True))


@pytest.mark.parametrize("op", ["BackgroundCall", "Put", "Join", "Wait", "Drain", "Verdict"])
def test_a_lost_task_is_told_as_such_by_whatever_passes_on_its_error(op):
    # TensorFlow turns Unavailable into Internal for other ops, from which neither sessions nor coordinators recover.
    assert op_def_registry.get("Tfsched" + op).is_distributed_communication

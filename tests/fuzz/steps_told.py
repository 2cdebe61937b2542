"""What workers that mark every step (in_chaos.py) have told of each, and what that asks of the marks."""

import json

STRIDE = 4  # in_chaos.py's


class Told:
    """The logs of all workers, and what is found wrong with the marks.

    A step that was reported has one mark on every variable. One that failed, or was under way when its worker was lost, has
    one or none. What a worker had reported last when it was lost may be lost with it: who heard of it is gone, too.
    """

    def __init__(self, variables):
        self.violations = []
        self._variables = variables
        self._logs = []  # [worker, path, lost]
        self._baseline = None  # marks of the checkpoint that was restored last, by variable
        self._old = set()  # steps before that
        self._checked = set()

    def follow(self, worker, path):
        """A worker writes to a file from now on."""
        self._logs.append([worker, path, False])

    def lost(self, worker):
        """A worker was killed."""
        for log in self._logs:
            if log[0] == worker:
                log[2] = True

    def next_number(self, index):
        """A worker's first step that nobody has begun."""
        numbers = [number for number in self._steps()[0] if number % STRIDE == index]
        return max(numbers, default=index - STRIDE) + STRIDE

    def _entries(self, path):
        try:
            with open(path, encoding="utf-8") as file:
                # The last line may have been under way when its process was killed.
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def _steps(self):
        """Step -> its entry, with "end_s" if it was reported and "kind" as it was asked for; checkpoints."""
        steps, saves = {}, []
        for _, path, lost in self._logs:
            last = None
            for entry in self._entries(path):
                if entry["kind"] in ("step", "cancel", "shape"):
                    steps[entry["number"]] = {**entry, "told": "nothing", "last": False}
                elif entry["kind"] in ("ok", "failed"):
                    steps[entry["number"]].update(told=entry["kind"], end_s=entry["end_s"])
                    if entry["kind"] == "ok":
                        last = entry["number"]
                elif entry["kind"] == "saved":
                    saves.append(entry)
            if lost and last is not None:
                steps[last]["last"] = True
        return steps, saves

    def last_saved(self):
        """The newest checkpoint, None if there is none."""
        return max(self._steps()[1], key=lambda one: one["end_s"], default=None)

    def restored(self, saved, marks_of):
        """The variables have got a checkpoint's marks, or none at all: what was done before counts as that says.

        Args:
          saved: one of the checkpoints, None for first values.
          marks_of: gives a checkpoint's marks by its path.
        """
        self.check_saves(marks_of)  # by what was so until now
        self._baseline = None if saved is None else marks_of(saved["path"])
        self._old = set(self._steps()[0])

    def check_saves(self, marks_of):
        """Each checkpoint that nobody has looked at holds every step that was reported before it began."""
        for saved in self._steps()[1]:
            if saved["path"] not in self._checked:
                self._checked.add(saved["path"])
                where = f"checkpoint {saved['path'].rpartition('/')[2]}"
                self._check(marks_of(saved["path"]), where, saved["begin_s"], saved["end_s"])

    def check_end(self, marks):
        """So do the variables in the end."""
        self._check(marks, "the end", float("inf"), float("inf"))

    def _check(self, marks, where, before_s, until_s):
        steps, _ = self._steps()
        for variable in range(self._variables):
            found = marks[variable]
            wanted_before = (self._baseline or [{}] * self._variables)[variable]
            for text, count in found.items():
                if int(text) not in steps or (steps[int(text)]["begin_s"] > until_s):
                    self._say(where, int(text), variable, count, "nobody had begun it")
            for number, step in steps.items():
                count = found.get(str(number), 0)
                if number in self._old:
                    if count != wanted_before.get(str(number), 0):
                        self._say(where, number, variable, count, f"{wanted_before.get(str(number), 0)} were restored")
                    continue
                poisoned = step["kind"] == "shape" and variable == self._variables - 1
                if poisoned and count:
                    self._say(where, number, variable, count, "its gradient does not fit")
                elif count not in (0, 1):
                    self._say(where, number, variable, count, f"it was told as {step['told']}")
                elif step["told"] == "ok" and step["end_s"] < before_s and not step["last"] and not poisoned and count != 1:
                    self._say(where, number, variable, count, "it was reported")

    def _say(self, where, number, variable, count, why):
        self.violations.append(f"{where}: step {number} was applied {count:g} times to variable {variable}, and {why}")

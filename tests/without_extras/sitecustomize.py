"""Python runs this first where it finds it: such a process has nothing of tfsched's extras `plot` and `tune`.

Keras imports what it finds of them, which is a third of what importing TensorFlow costs.
"""

import sys

for name in ("matplotlib", "pandas", "scipy", "sklearn"):
    sys.modules[name] = None  # to import it is an ImportError

"""Programs inside a container role, over hostile or private files; they load no launcher of containers."""

import os

# Matrices here are three by three: a thread of NumPy's linear algebra for each core costs 40 ms of every start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

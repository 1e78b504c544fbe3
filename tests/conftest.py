"""For every test: one BLAS thread (several spin against whatever else runs), and device leases of its own."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

pytest_plugins = ("tests.services.fixtures",)

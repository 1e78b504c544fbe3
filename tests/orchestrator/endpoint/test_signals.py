"""A signal to stop waits for the end of a transaction; the endpoint's threads do not take it either."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, pathlib, signal, sys, time, urllib.request
from tests.services.endpoint import Endpoint

endpoint = Endpoint(pathlib.Path(sys.argv[1]))
urllib.request.urlopen(endpoint.url + "/health").read()
said = []
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: said.append("signal"))
    with endpoint.database.write():
        os.kill(os.getpid(), number)
        for _ in range(20):
            time.sleep(0.01)
        said.append("end")
endpoint.close()
print(*said)
"""


@pytest.mark.slow
def test_a_signal_waits_for_the_end_of_a_transaction(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout.split() == ["end", "signal", "end", "signal"]

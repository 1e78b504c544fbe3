"""Runners that look for a way out: `python hostile_runners.py KIND JOB.json FOLDER`.

What each found is the `facts` of its result; what it tries is told by the variables and files of the test.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def environment() -> dict[str, str]:
    return dict(os.environ)


if __name__ == "__main__":
    found = globals()[sys.argv[1]]()
    answer = {"status": "done", "reason": None, "facts": found}
    (Path(sys.argv[3]) / "result.json").write_text(json.dumps(answer))

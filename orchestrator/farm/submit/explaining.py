"""Asks, before anything is measured, which operators the delegates of a campaign would take, and why not all.

The question is planned within a runner's boundary: this process opens no model. It is answered for the
devices of this machine, of which a lab may have others.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.wire.environment import for_agent
from agent.wire.messages import artifact_path
from agent.wire.profile import Explained
from orchestrator.manifest.campaign import DelegateEntry
from orchestrator.results.profiles import advice_lines
from runtime.common.system import usable_cpus

_SHOWN: Final = 6
"""Reasons that are printed for a delegate, as many as fit a screen with several models; `--json` has all."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer of a delegate on a model."""

    model: str
    delegate: str
    found: Explained

    def lines(self) -> Iterator[str]:
        """Yield it for people: `N of M operators`, the reasons, the advice."""
        found, head = self.found, f"{self.model} on {self.delegate}"
        if found.obstacle and not found.delegated_ops:
            yield f"{head}: {found.obstacle}"
        else:
            yield f"{head}: {found.delegated_ops} of {found.total_ops} operators"
        for reason, count in list(found.reasons.items())[:_SHOWN]:
            yield f"  {count} x {reason}"
        if len(found.reasons) > _SHOWN:
            yield f"  and {len(found.reasons) - _SHOWN} more reasons: --json"
        if found.advice is not None:
            yield from (f"  {said}" for said in advice_lines(found.advice))


def explanations(
    store: Path,
    models: Iterable[tuple[str, str]],
    delegates: Iterable[DelegateEntry],
    note: Callable[[str], None],
) -> list[Explanation]:
    """Ask every delegate about every model, given by id and sha256; `note` is told each model.

    A question starts two interpreters: as many are asked at a time as this process has CPUs, and one that
    several delegates have in common, as they differ in threads or in their name alone, is asked once.
    """
    known, listed = list(models), list(delegates)
    questions = dict.fromkeys(_question(store, sha256, one) for _, sha256 in known for one in listed)
    answers = []
    with ThreadPoolExecutor(len(usable_cpus())) as pool:
        asked = {question: pool.submit(_answer, *question) for question in questions}
        try:
            for model, sha256 in known if listed else ():
                note(f"planning {model}")
                for delegate in listed:
                    found = asked[_question(store, sha256, delegate)].result()
                    answers.append(Explanation(model, delegate.name, found))
        finally:
            pool.shutdown(cancel_futures=True)  # Ctrl-C waits for what runs, not for what was to follow.
    return answers


def _question(store: Path, sha256: str, delegate: DelegateEntry) -> tuple[Path, str, str]:
    """Return the model's file, the kind of the delegate, and its options as JSON."""
    options = {name: value for name, value in delegate.options.items() if name != "threads"}
    return artifact_path(store, sha256), delegate.kind, json.dumps(options)


def _answer(path: Path, kind: str, options: str) -> Explained:
    # `-P`: no file of the working folder stands in for a module.
    command = [sys.executable, "-P", "-m", "agent.enclosed", "--explain", str(path), kind, options]
    ran = subprocess.run(  # noqa: S603 - this interpreter, and a module of this package
        command, env=for_agent(), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if ran.returncode:
        words = ran.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"exit {ran.returncode}"]
        return Explained(obstacle=words[0])
    return Explained.model_validate_json(ran.stdout)

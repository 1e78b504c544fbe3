"""Prepares the opening of a model in an attempt's processes: delegate options and input rules."""

from collections.abc import Mapping
from pathlib import Path

from agent.attempt.files import AttemptFile
from agent.runner.tunings import COLD, given_choices
from runtime.common.system import usable_cpus
from runtime.delegates.registry import delegate_descriptor
from runtime.measure.inputs import InputRule, InputRules, StoredValues
from runtime.measure.loading import Opener, Subject


def input_rules(attempt: AttemptFile) -> InputRules:
    """Convert the input specifications of an attempt's job to the runtime's rules."""
    paths = attempt.input_paths
    rules = {
        name: InputRule(
            spec.shape,
            spec.seed,
            spec.low,
            spec.high,
            spec.distribution,
            None if spec.data is None else StoredValues(paths[name], spec.data.sha256),
        )
        for name, spec in attempt.job.inputs.items()
    }
    return InputRules(rules, attempt.job.plan.input_sets)


def opener_of(attempt: AttemptFile, choices: Mapping[str, str]) -> Opener:
    """Return the opener of the job's delegate, with the job's options, those set from the device, and
    `choices`.

    CPU affinity enforces `threads` for every delegate (`agent.runner.probe.environment`); one that declares
    the option receives the count, so that its pool is no larger. Raises `DelegateError`.
    """
    job = attempt.job
    descriptor = delegate_descriptor(job.delegate_kind)
    options = {**descriptor.device_options(attempt.device), **job.delegate_options}
    if descriptor.takes_threads:
        options["threads"] = len(usable_cpus())
    return Opener.prepare(job.delegate_kind, {**options, **choices})


def subject_of(attempt: AttemptFile, opener: Opener) -> Subject:
    """Return the job's model, as an opener of its delegate opens it."""
    return Subject(opener, attempt.model_path, attempt.job.model_sha256, input_rules(attempt))


def as_timed(attempt: AttemptFile, folder: Path) -> Subject:
    """Return the model for a pass that follows the timed processes: as theirs, with the first tuning's
    choices. Raises `DelegateError`.
    """
    # The number of any timed process: what it is given follows from its tuning alone.
    job, timed = attempt.job, COLD + 1
    choices = given_choices(folder, timed, 0, job, delegate_descriptor(job.delegate_kind))
    return subject_of(attempt, opener_of(attempt, choices))

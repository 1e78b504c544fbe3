"""The one face of the farm that the command line, the site and the tests call, by verb.

`Farm.open(home)` gives a farm with these parts:

submission   plan, submit: what was asked becomes cells of a campaign
running      run: schedule or watch a campaign until it has ended
reading      campaigns, cells, samples, why, history, output, devices, agents, overview: change nothing
steering     cancel, pause, resume, prioritise, retry, quarantine, release, drain and remove agents
devices      hello: which devices are there now
doctor       every part of the farm with what is wrong and the fix

`serving.serve_lab` is the scheduler of a lab, and imports what only a lab has.
"""

from __future__ import annotations

from orchestrator.farm.opening import Farm

__all__ = ["Farm"]

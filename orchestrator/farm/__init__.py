"""The programming interface of the farm, which the command line, the site and the tests call.

`Farm.open(home)` gives a farm with these parts:

submission   plan, submit: turn a request into the cells of a campaign
running      run: schedule or watch a campaign until it has ended
reading      campaigns, cells, samples, why, history, output, devices, agents, overview: change nothing
refinements  refine: add blocks to the vaguest results of a campaign
steering     cancel, pause, resume, prioritise, retry, quarantine, release, drain and remove agents
devices      hello: the devices that are present now
doctor       check every part of the farm: what is wrong, and the fix

On a user's machine, `RemoteFarm.open(home, lab)` gives a farm whose parts ask this one over HTTP (`remote`).
`serving.serve_lab` is the scheduler of a lab, and imports what only a lab has.
"""

from orchestrator.farm.opening import Farm

__all__ = ["Farm"]

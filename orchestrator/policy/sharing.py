"""Divides the models of a campaign among equal machines. Pure.

The cells of a model stay together: those of one host are measured by turns with their baseline, and results
of two machines are no series. So a model goes where it was measured last, and a new one to the machine that
has the fewest.
"""

from collections.abc import Iterable, Mapping, Sequence

from agent.wire.messages import Device
from orchestrator.results.speedups import host_of


def equal_hosts(devices: Iterable[Device]) -> list[dict[str, frozenset[str]]]:
    """Return the groups of two or more hosts with the same devices, each host with the ids of its own.

    Devices are the same if kind, interface, vendor, name, delegates and labels are: a label tells machines
    apart that are not to share.
    """
    hosts: dict[str, list[Device]] = {}
    for device in devices:
        hosts.setdefault(host_of(device.device_id), []).append(device)
    groups: dict[object, dict[str, frozenset[str]]] = {}
    for host, own in sorted(hosts.items()):
        kind = tuple(sorted(map(_description, own)))
        groups.setdefault(kind, {})[host] = frozenset(device.device_id for device in own)
    return [group for group in groups.values() if len(group) > 1]


def left_out(
    models: Sequence[str], devices: Sequence[Device], homes: Mapping[str, str]
) -> list[frozenset[str]]:
    """Return for each model, by its sha256, the devices of the equal machines that do not measure it.

    `homes`: by the same, the device that measured a model last.
    """
    found: list[frozenset[str]] = [frozenset()] * len(models)
    for group in equal_hosts(devices):
        # First the models that have a home: new ones then even out what those leave.
        at = {sha256: host for sha256 in models if (host := host_of(homes.get(sha256, ""))) in group}
        load = dict.fromkeys(group, 0)
        for host in at.values():
            load[host] += 1
        everything = frozenset[str]().union(*group.values())
        for place, sha256 in enumerate(models):
            if sha256 not in at:
                # Equal loads go by name: the same campaign is divided alike each time.
                at[sha256] = min(load, key=lambda host: (load[host], host))
                load[at[sha256]] += 1
            found[place] |= everything - group[at[sha256]]
    return found


def _description(device: Device) -> tuple[str, ...]:
    labels = (f"{name}={value}" for name, value in sorted(device.labels.items()))
    own_name = device.device_id.rpartition(".")[2]
    return own_name, device.kind, device.api, device.vendor, device.name, *sorted(device.delegates), *labels

"""Faults to be chosen at random: each does its harm and mends it, and says what it did."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from tests.faults.lab import FaultLab


def kill_runner(lab: FaultLab) -> str:
    running = [fact for agent in lab.agents.values() for fact in agent.running_attempts()]
    if not running:
        return "no runner to kill"
    chosen = lab.chance.choice(running)
    try:
        os.kill(chosen.pid, signal.SIGKILL)
    except ProcessLookupError:
        return "the runner was faster"
    return f"runner of {chosen.device_id} killed"


def kill_agent(lab: FaultLab) -> str:
    agent = lab.agents[lab.chance.choice(sorted(lab.agents))]
    agent.kill()
    time.sleep(lab.chance.uniform(0, 2))
    agent.start()
    return f"{agent.name} killed and started"


def stop_agent(lab: FaultLab) -> str:
    agent = lab.agents[lab.chance.choice(sorted(lab.agents))]
    assert agent.stop() == 0
    time.sleep(lab.chance.uniform(0, 2))
    agent.start()
    return f"{agent.name} stopped and started"


def pause_agent(lab: FaultLab) -> str:
    agent = lab.agents[lab.chance.choice(sorted(lab.agents))]
    seconds = lab.chance.choice([1, 4, 9])
    agent.pause()
    time.sleep(seconds)
    agent.resume()
    return f"{agent.name} paused for {seconds} s"


def kill_link(lab: FaultLab) -> str:
    agent = lab.agents[lab.chance.choice(sorted(lab.agents))]
    for pid in agent.link_pids():
        os.kill(pid, signal.SIGKILL)
    return f"link of {agent.name} killed"


def kill_server(lab: FaultLab) -> str:
    lab.server.kill()
    time.sleep(lab.chance.uniform(0, 3))
    lab.start_server()
    return "farm lab serve killed and started"


def stop_server(lab: FaultLab) -> str:
    assert lab.server.stop() == 0
    lab.start_server()
    return "farm lab serve stopped and started"


def pause_server(lab: FaultLab) -> str:
    lab.server.pause()
    time.sleep(4)
    lab.server.resume()
    return "farm lab serve paused for 4 s"


def crash_redis(lab: FaultLab) -> str:
    lab.redis.restart(pause_s=lab.chance.uniform(0, 4))
    return "redis crashed"


def empty_redis(lab: FaultLab) -> str:
    lab.redis.lose_everything()
    return "redis lost everything"


def pause_redis(lab: FaultLab) -> str:
    seconds = lab.chance.choice([2, 8])
    lab.redis.pause()
    time.sleep(seconds)
    lab.redis.resume()
    return f"redis paused for {seconds} s"


def crash_postgres(lab: FaultLab) -> str:
    assert lab.postgres is not None
    lab.postgres.restart("immediate", pause_s=lab.chance.uniform(0, 4))
    return "postgresql crashed"


def pull_cable(lab: FaultLab) -> str:
    node = lab.network.nodes[lab.chance.choice(["agA", "agB", "server", "services"])]
    seconds = lab.chance.choice([1, 4, 10])
    node.pull_cable()
    time.sleep(seconds)
    node.plug_cable()
    return f"cable of {node.name} pulled for {seconds} s"


def lose_packets(lab: FaultLab) -> str:
    node = lab.network.nodes[lab.chance.choice(["agA", "agB", "server"])]
    node.drop_incoming(percent=20)
    time.sleep(5)
    node.drop_nothing()
    return f"{node.name} lost 20 % of its packets for 5 s"


def cancel_something(lab: FaultLab) -> str:
    open_cells = lab.view.open_cells()
    if not open_cells:
        return "nothing to cancel"
    cell = lab.chance.choice(open_cells)
    done = lab.call("cancel", cell.cell_id)
    return f"cell {cell.cell_id} cancelled: exit code {done.returncode}"


FAULTS: tuple[Callable[[FaultLab], str], ...] = (
    kill_runner,
    kill_agent,
    stop_agent,
    pause_agent,
    kill_link,
    kill_server,
    stop_server,
    pause_server,
    crash_redis,
    empty_redis,
    pause_redis,
    crash_postgres,
    pull_cable,
    lose_packets,
    cancel_something,
)

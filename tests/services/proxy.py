"""A TCP proxy that is as bad as it is told: `proxy.py --listen HOST:PORT --target HOST:PORT [faults]`.

--delay-ms, --jitter-ms   every piece of data is kept for so long, in order
--cut-after N             the first connection's answer ends after N bytes (once)
--flip-at N               one bit of byte N of the first connection's answer is turned over (once)
--swap-at N               from byte N on, the first connection's answer is other data (once)
--hold-at N               the first connection's answer stops after N bytes, and the connection stays (once)
--seed                    of the jitter
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
from dataclasses import dataclass


@dataclass
class Faults:
    """The faults that are applied to the data. Of those that happen once, the first connection to get there
    uses it up.
    """

    delay_s: float
    jitter_s: float
    cut_after: int | None
    flip_at: int | None
    swap_at: int | None
    hold_at: int | None
    chance: random.Random

    def pause_s(self) -> float:
        return max(0.0, self.delay_s + self.chance.uniform(-self.jitter_s, self.jitter_s))

    def spoil(self, data: bytes, start: int) -> tuple[bytes, bool]:
        """Return the bytes that come through of an answer's piece from `start` on, and whether it ends
        there.
        """
        if self.flip_at is not None and start <= self.flip_at < start + len(data):
            at, self.flip_at = self.flip_at - start, None
            data = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
            _tell(f"turned a bit over in byte {start + at}")
        if self.cut_after is not None and start + len(data) > self.cut_after:
            kept, self.cut_after = self.cut_after - start, None
            _tell(f"cut after {start + kept} bytes")
            return data[:kept], True
        return data, False

    def swaps(self, passed: int) -> bool:
        """Whether the rest of an answer is to be other data."""
        if self.swap_at is None or passed < self.swap_at:
            return False
        self.swap_at = None
        _tell(f"swapped after {passed} bytes")
        return True

    def holds(self, passed: int) -> bool:
        """Whether nothing more is to come through of an answer."""
        if self.hold_at is None or passed < self.hold_at:
            return False
        self.hold_at = None
        _tell(f"held after {passed} bytes")
        return True


def _tell(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, faults: Faults, answer: bool
) -> None:
    passed, swapped = 0, False
    with contextlib.suppress(ConnectionError, asyncio.CancelledError):
        while data := await reader.read(1 << 14):
            if pause_s := faults.pause_s():
                await asyncio.sleep(pause_s)
            ended = False
            if answer:
                start, passed = passed, passed + len(data)
                data, ended = faults.spoil(bytes(len(data)) if swapped else data, start)
                swapped = swapped or faults.swaps(passed)
            writer.write(data)
            await writer.drain()
            if ended:
                break
            if answer and faults.holds(passed):
                await reader.read(-1)
    if answer:
        _tell(f"passed {passed} bytes")
    writer.close()


async def _serve(listen: tuple[str, int], target: tuple[str, int], faults: Faults) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*target)
        except OSError:
            writer.close()
            return
        there = asyncio.create_task(_pump(reader, far_writer, faults, answer=False))
        await _pump(far_reader, writer, faults, answer=True)
        there.cancel()
        far_writer.close()

    server = await asyncio.start_server(connected, *listen)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--listen", "--target"):
        parser.add_argument(name, type=_address, required=True)
    for name in ("--delay-ms", "--jitter-ms"):
        parser.add_argument(name, type=float, default=0.0)
    for name in ("--cut-after", "--flip-at", "--swap-at", "--hold-at"):
        parser.add_argument(name, type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    once = (given.cut_after, given.flip_at, given.swap_at, given.hold_at)
    faults = Faults(given.delay_ms / 1e3, given.jitter_ms / 1e3, *once, random.Random(given.seed))
    asyncio.run(_serve(given.listen, given.target, faults))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    main()

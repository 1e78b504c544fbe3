"""Times `farm --help` as a multiple of `python -c "import typer"`; interleaved whole processes.

    .venv/bin/python benchmarks/cli_start.py [--rounds 15]

The mark is 4. Writes benchmarks/results/cli_start.json.
"""

import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks.interleaved import ends, measure, ratio, slices
from benchmarks.output import RESULTS, parser, write_figures

HELP = [str(Path(sys.executable).with_name("farm")), "--help"]
TYPER = [sys.executable, "-c", "import typer"]


def main() -> int:
    """Measure, print, write."""
    options = parser(__doc__, RESULTS / "cli_start.json")
    options.add_argument("--rounds", type=int, default=15)
    args = options.parse_args()
    commands = {"help": HELP, "typer": TYPER}
    # A slice without a length is one process a round.
    arms = {name: slices(partial(_run, command), slice_s=0.0) for name, command in commands.items()}
    timed = measure(arms, args.rounds)
    found = ratio(timed.seconds["help"], timed.seconds["typer"])
    write_figures(args.out, {"farm_help_over_import_typer": found})
    print(f"farm --help: {found['ratio']:.2f} ({ends(found)}) x import typer")
    return 0


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    raise SystemExit(main())

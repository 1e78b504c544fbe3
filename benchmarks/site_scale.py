"""Times `farm site build` on many campaigns of measured cells: a first one, and one after a further campaign.

    .venv/bin/python -m benchmarks.site_scale [--cells 2000] [--campaigns 5] [--out FILE]

The results are those of `compare_scale.py`, without raw samples, as an old farm has most of them. The marks
are for 100,000 results: 60 s and 1.5 GiB for a first build, 2 s for one more result, 5 KB of files for each.
"""

import gzip
import resource
import tempfile
from pathlib import Path

from benchmarks.compare_scale import fill, seconds
from benchmarks.output import RESULTS, parser, write_figures
from orchestrator.config.home import FarmHome
from tests.orchestrator.stocked import new_database


def main() -> int:
    """Fill a home, build, add a campaign of one model, build again, print, write."""
    options = parser(__doc__, RESULTS / "site_scale.json")
    options.add_argument("--cells", type=int, default=2_000)
    options.add_argument("--campaigns", type=int, default=5)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="farm-site-") as folder:
        home = FarmHome(Path(folder))
        database = new_database(Path(folder))
        fill(database, given.cells // 2, [f"night-{number}" for number in range(given.campaigns)])
        results = given.cells * given.campaigns
        first, again = seconds(folder, "site", "build"), seconds(folder, "site", "build")
        fill(database, 1, ["one more"])
        database.close()
        more = seconds(folder, "site", "build")
        files = [path for path in home.site.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        index = len(gzip.compress((home.site / "index.html").read_bytes()))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    figures = {
        "results": results, "first_s": first, "unchanged_s": again, "one_more_s": more,
        "peak_bytes": peak, "files": len(files), "bytes_per_result": size / results, "home_gzip_bytes": index,
    }  # fmt: skip
    write_figures(given.out, figures)
    print(
        f"{results} results: first build {first[0]:.1f} s, {first[1] / results * 1e3:.2f} ms of a processor "
        f"for each; unchanged {again[1]:.1f} s, one more {more[1]:.1f} s of a processor\n"
        f"at most {peak / 2**20:.0f} MiB; {len(files)} files, {size / results / 1e3:.1f} KB a result; "
        f"home {index / 1e3:.0f} KB compressed"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

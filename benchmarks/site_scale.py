"""Times `farm site build` on many versions of one campaign: a first one, and one after a further result.

    .venv/bin/python -m benchmarks.site_scale [--models 25] [--columns 40] [--versions 10] [--out FILE]

The results are those of `compare_scale.py`, without raw samples, as an old farm has most of them. The marks
are for 250 models, which are 100,000 results: 60 s and 1.5 GiB for a first build, 2 s for one more result,
5 KB of files for each.
"""

import gzip
import resource
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from benchmarks.compare_scale import fill, seconds
from benchmarks.output import RESULTS, parser, write_figures
from orchestrator.config.home import FarmHome
from tests.orchestrator.stocked import new_database

_LATER = "strftime('%Y-%m-%d %H:%M:%f', {}, '+' || :n || ' days')"


def main() -> int:
    """Fill a home, build, add a campaign of one model, build again, print, write."""
    options = parser(__doc__, RESULTS / "site_scale.json")
    options.add_argument("--models", type=int, default=25)
    options.add_argument("--columns", type=int, default=40)
    options.add_argument("--versions", type=int, default=10)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="farm-site-") as folder:
        home = FarmHome(Path(folder))
        database = new_database(Path(folder))
        fill(database, given.models, ["nightly"], given.columns)
        repeat(home.database, given.versions)
        results = given.models * given.columns * given.versions
        first, again = seconds(folder, "site", "build"), seconds(folder, "site", "build")
        fill(database, 1, ["one more"], columns=1)
        database.close()
        more = seconds(folder, "site", "build")
        files = [path for path in home.site.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        index = len(gzip.compress((home.site / "index.html").read_bytes()))
    # Linux tells KiB.
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


_P50 = "'$.latency_ms.p50'"

_NEXT = {
    "campaign": {
        "no": "no + :n", "campaign_id": "campaign_id || :n", "submitted_at": _LATER.format("submitted_at"),
    },
    "cell": {
        "cell_id": "cell_id || :n", "campaign_no": "campaign_no + :n",
        "shown_attempt_id": "shown_attempt_id || :n",
    },
    "attempt": {"attempt_id": "attempt_id || :n", "cell_id": "cell_id || :n"},
    "result": {
        "attempt_id": "attempt_id || :n", "cell_id": "cell_id || :n",
        "received_at": _LATER.format("received_at"),
        "measurement": f"json_set(measurement, {_P50}, json_extract(measurement, {_P50})"
        " * (1 + abs(random() % 1000) / 50000.0))",
    },
}  # fmt: skip
"""By table, the columns in which a version differs from the first: names, days, and medians by up to 2 %."""


def repeat(database: Path, versions: int) -> None:
    """Copy the only campaign: storing each result as the farm does would outlast all builds."""
    with closing(sqlite3.connect(database)) as connection, connection:
        for table, changed in _NEXT.items():
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            chosen = ", ".join(changed.get(column, column) for column in columns)
            connection.execute(f"CREATE TEMPORARY TABLE first AS SELECT * FROM {table}")  # noqa: S608
            for version in range(1, versions):
                connection.execute(f"INSERT INTO {table} SELECT {chosen} FROM first", {"n": version})  # noqa: S608
            connection.execute("DROP TABLE first")


if __name__ == "__main__":
    raise SystemExit(main())

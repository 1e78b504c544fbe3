"""Computes the paths of pages and data files below the site's root, from ids, never from names."""

import hashlib
import re

INDEX = "index.html"
METHOD = "method.html"
TRENDS = "trends.html"
FAILURES = "failures.html"
FEED = "feed.xml"
PUBLISHED = "published.html"
ANY_CELL = "cell.html"
ANY_COMPARISON = "compare.html"
STYLE = "assets/style.css"
SCRIPT = "assets/site.js"
CHOICES_SCRIPT = "assets/choices.js"
SHARDS_SCRIPT = "assets/shards.js"
CELL_SCRIPT = "assets/cell.js"
COMPARE_SCRIPT = "assets/compare.js"
ASSETS = (STYLE, SCRIPT, CHOICES_SCRIPT, SHARDS_SCRIPT, CELL_SCRIPT, COMPARE_SCRIPT)
"""Files of `templates/`, under their names there."""

MANIFEST = "data/site.json"
SUMMARIES = "data/summaries.json"

_PLAIN_ID = re.compile(r"[0-9a-z][0-9a-z-]{3,63}")


def slug(identifier: str) -> str:
    """Return a file stem for an id: the id itself if it is plain, else 16 hex digits of its sha256."""
    return identifier if _PLAIN_ID.fullmatch(identifier) else digest(identifier)


def digest(*parts: str) -> str:
    """16 hex digits of the sha256 of the parts."""
    # NUL keeps ("a", "bc") and ("ab", "c") apart; names of files may hold lone surrogates.
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:16]


def campaign_page(campaign_id: str) -> str:
    """Return the page of a campaign."""
    return f"campaigns/{slug(campaign_id)}.html"


def model_page(campaign_id: str, model: str) -> str:
    """Return the page of a model in a campaign."""
    return f"models/{digest(campaign_id, model)}.html"


def history_page(model: str) -> str:
    """Return the page of a model over all campaigns."""
    return f"history/{digest(model)}.html"


def series_anchor(key: tuple[str, ...]) -> str:
    """Return the anchor of a series on the page of its model."""
    return f"s-{digest(*key)}"


def device_page(device_id: str) -> str:
    """Return the page of a device."""
    return f"devices/{digest(device_id)}.html"


def comparison_page(campaign_id: str) -> str:
    """Return the page that compares a campaign with the one before it."""
    return f"compare/{slug(campaign_id)}.html"


def any_comparison_page(second: str, first: str = "") -> str:
    """Return the address at which two campaigns are compared; without a `first`, it is the one before."""
    chosen = f"first={slug(first)}&" if first else ""
    return f"{ANY_COMPARISON}#{chosen}second={slug(second)}"


def cause_anchor(code: str, kind: str) -> str:
    """Return the anchor of a cause on the page of failures."""
    return f"c-{digest(code, kind)}"


def cell_page(cell_id: str) -> str:
    """Return the page of a cell of a campaign that is drawn in full."""
    return f"cells/{slug(cell_id)}.html"


def shard_name(campaign_id: str, number: int) -> str:
    """Return what a shard of a campaign's cells is called."""
    return f"{slug(campaign_id)}-{number}"


def shard(name: str) -> str:
    """Return the file of a shard: a script, the one kind of data that a page opened from file:// may load."""
    return f"data/shards/{name}.js"


def choice_name(version: str) -> str:
    """Return the name of the script with the home page's choices of a version, else of the newest results."""
    return digest(version) if version else "newest"


def choice(version: str) -> str:
    """Return the file of that script."""
    return f"data/choices/{choice_name(version)}.js"


def shard_page(name: str) -> str:
    """Return the page that lists the cells of a shard."""
    return f"{ANY_CELL}#{name}"


def any_cell_page(name: str, cell_id: str) -> str:
    """Return the permanent address of a cell, which its shard draws."""
    return f"{shard_page(name)}/{slug(cell_id)}"


def cell_data(cell_id: str) -> str:
    """Everything known of a cell, raw samples included, as JSON."""
    return f"data/cells/{slug(cell_id)}.json"


def flame_page(cell_id: str) -> str:
    """Return the flame graph of a cell's profile: a page that stands alone, to be sent to others."""
    return f"data/flames/{slug(cell_id)}.html"


def campaign_data(campaign_id: str, suffix: str) -> str:
    """Return the file of a campaign's results, `suffix` json or csv."""
    return f"data/{slug(campaign_id)}.{suffix}"


def environment_anchor(device_id: str, environment_id: str) -> str:
    """Anchor of a device in an environment, on the home page and its campaign's."""
    return f"env-{digest(device_id, environment_id)}"

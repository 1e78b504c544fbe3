"""From a campaign to its end: plan, store, run, follow, notify."""

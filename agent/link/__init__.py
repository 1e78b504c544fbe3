"""The link: one process between an agent's daemon and the broker of a lab."""

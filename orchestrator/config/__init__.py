"""Settings of a home folder and of a lab: addresses, limits, file systems, and the one clock."""

"""The farm's decisions as pure functions of values. Contract C7 forbids all I/O in this package."""

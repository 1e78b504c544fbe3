"""The HTTP interface, which `farm serve` serves: artifacts for agents, enrolment, results as JSON."""

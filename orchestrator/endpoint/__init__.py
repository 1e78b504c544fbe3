"""The HTTP interface, which `farm lab serve` serves: artifacts for agents, enrolment, results as JSON."""

"""The farm over HTTP: artifacts for agents, enrolment, results as JSON. Served by `farm serve`."""

"""Who is trusted: the farm's key, the agents' credentials and enrolment, and their rights at the broker."""

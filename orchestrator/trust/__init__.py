"""Who is trusted: the farm's keys, the agents' credentials and enrolment, and their rights at the broker."""

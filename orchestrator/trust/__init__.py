"""The farm's keys, the agents' credentials and enrolment, and the agents' rights at the broker."""

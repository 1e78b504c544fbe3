"""What is known of campaigns and of the scheduler."""

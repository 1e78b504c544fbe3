"""What is kept between processes: caches, and what they are keyed by."""

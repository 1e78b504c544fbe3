"""What runs behind the timed blocks, and beside them: labelled data, load, throughput, sensors."""

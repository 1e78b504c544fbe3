"""Everything that changes rows, one module for each kind of change."""

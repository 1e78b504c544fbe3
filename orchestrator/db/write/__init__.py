"""The changes of rows, one module for each kind of change."""

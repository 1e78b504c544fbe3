"""Recurrent cells, which keep their states between runs."""

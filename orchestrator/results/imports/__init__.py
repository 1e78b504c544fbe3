"""Reads result files of other tools into the form of a result of the farm."""

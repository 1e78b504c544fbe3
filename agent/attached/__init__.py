"""Devices without Python that hang on this host: where they are, how they are reached, what they are."""

"""Brings models into the store from files, skeletons, the zoo, wheels, npm packages and https."""

"""Describes this machine: host, OpenCL devices, delegates, and the environment of a process."""

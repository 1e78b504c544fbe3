"""What this machine is: host, OpenCL devices, delegates, and the environment of a process."""

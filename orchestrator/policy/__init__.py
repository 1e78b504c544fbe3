"""Pure decisions: values in, values out. Contract C7 forbids every module of this folder any I/O."""

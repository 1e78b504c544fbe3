"""The runner: lists devices, and measures one attempt. The only part of the agent that uses the runtime."""

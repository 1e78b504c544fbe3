"""The messages between orchestrator and agent, and everything that both ends must agree on."""

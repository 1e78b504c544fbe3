"""Links to the orchestrator: one protocol (`agent.messages`), one module per carrier."""

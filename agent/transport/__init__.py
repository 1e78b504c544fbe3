"""Links to the orchestrator: one protocol (`agent.wire.messages`), one module per carrier."""

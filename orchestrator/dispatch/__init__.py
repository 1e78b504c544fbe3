"""The links that carry jobs to agents and messages from them: one protocol, one module per link."""

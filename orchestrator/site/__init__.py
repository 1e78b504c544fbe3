"""The static site: what the database knows, as pages that need no server, no network and no script."""

"""Builds the static site: the database's content as pages without server, network or script."""

"""Jinja templates, style sheet and script of the site; rendered by `orchestrator.site`."""

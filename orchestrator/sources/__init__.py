"""Where models come from: files, skeletons, the zoo and wheels; all end in the content-addressed store."""

from __future__ import annotations

from orchestrator.sources.resolve import StoredModel, check, check_all, resolve, resolve_all

__all__ = ["StoredModel", "check", "check_all", "resolve", "resolve_all"]

"""Where models come from: files, skeletons, the zoo, wheels, packages, https: all end in the store."""

from __future__ import annotations

from orchestrator.sources.resolve import StoredModel, check, check_all, resolve, resolve_all
from orchestrator.sources.web import Web

__all__ = ["StoredModel", "Web", "check", "check_all", "resolve", "resolve_all"]

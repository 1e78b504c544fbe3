"""Brings models into the store from files, skeletons, the zoo, wheels, npm packages and https."""

from orchestrator.sources.resolve import (
    CheckedSources,
    StoredModel,
    check_all,
    problems_of,
    resolve,
    resolve_all,
)
from orchestrator.sources.web import Web

__all__ = ["CheckedSources", "StoredModel", "Web", "check_all", "problems_of", "resolve", "resolve_all"]

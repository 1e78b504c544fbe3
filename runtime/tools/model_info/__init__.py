"""`farm model info`: what a file is, read with the bounded reader, and who would run it here."""

from __future__ import annotations

from runtime.tools.model_info.delegation import DelegateView, delegate_views
from runtime.tools.model_info.facts import ModelFacts, model_facts

__all__ = ["DelegateView", "ModelFacts", "delegate_views", "model_facts"]

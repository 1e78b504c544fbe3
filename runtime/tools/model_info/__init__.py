"""`farm model info`: describes a file and the delegates that would run it here."""

from runtime.model.facts import ModelFacts, model_facts
from runtime.tools.model_info.advice import Advice, advice_for, measured_kinds
from runtime.tools.model_info.delegation import DelegateView, delegate_views
from runtime.tools.model_info.memory import MemoryPlan, memory_plan

__all__ = [
    "Advice",
    "DelegateView",
    "MemoryPlan",
    "ModelFacts",
    "advice_for",
    "delegate_views",
    "measured_kinds",
    "memory_plan",
    "model_facts",
]

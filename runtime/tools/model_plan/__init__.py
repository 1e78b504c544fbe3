"""`farm model plan`: how a delegate would run a model, as text, JSON or a graph; nothing is run here."""

from runtime.tools.model_plan.advice import Advice, Suitability, advice, suitability
from runtime.tools.model_plan.document import SCHEMA, Occupancy, document, occupancy
from runtime.tools.model_plan.model import ModelPlan, model_plan, planner_of
from runtime.tools.model_plan.text import dot, lines

__all__ = [
    "SCHEMA",
    "Advice",
    "ModelPlan",
    "Occupancy",
    "Suitability",
    "advice",
    "document",
    "dot",
    "lines",
    "model_plan",
    "occupancy",
    "planner_of",
    "suitability",
]

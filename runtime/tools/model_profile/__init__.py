"""`farm model profile`: times the kernels and operators of a model, as text or JSON."""

from runtime.tools.model_profile.document import SCHEMA, document
from runtime.tools.model_profile.measuring import Profiled, profile_file
from runtime.tools.model_profile.text import lines

__all__ = ["SCHEMA", "Profiled", "document", "lines", "profile_file"]

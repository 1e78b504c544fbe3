"""`farm model profile`: times the kernels and operators of a model."""

from runtime.tools.model_profile.document import SCHEMA, document
from runtime.tools.model_profile.measuring import profile_file

__all__ = ["SCHEMA", "document", "profile_file"]

"""LiteRT's Python API under LiteRT's module names: Interpreter, CompiledModel and what they need."""

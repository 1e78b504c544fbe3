"""Chooses among candidates, by costs, by timing and by the choices of earlier starts."""

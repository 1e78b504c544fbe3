"""LiteRT's evaluation tools on the farm's delegates: no campaign and no database."""

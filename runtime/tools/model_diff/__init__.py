"""`farm model diff`: how far a delegate's outputs are from a reference's; and LiteRT's spelling of it."""

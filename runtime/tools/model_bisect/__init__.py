"""`farm model bisect`: finds the operator, or the fusion, of which a wrong output comes."""

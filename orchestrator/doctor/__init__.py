"""`farm doctor`: every part of an installation, and the fix for each fault."""

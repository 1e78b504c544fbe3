"""What is wrong with this installation, and the fix for each fault."""

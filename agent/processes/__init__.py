"""Processes of an attempt: started in a control group, supervised, found again, ended, explained."""

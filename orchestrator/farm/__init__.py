"""The one face of the farm that the command line, the site and the tests call."""

"""Where everything lies: the plan of memory, constants, the text of a program."""

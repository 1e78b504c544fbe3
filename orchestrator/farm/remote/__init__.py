"""Both ends of a farm on another machine: the client, the calls, and the server that answers them."""

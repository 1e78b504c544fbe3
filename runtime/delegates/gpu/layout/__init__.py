"""Plans the memory of a partition, packs its constants and writes the text of its program."""

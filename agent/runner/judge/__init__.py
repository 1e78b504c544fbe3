"""What an attempt's reports mean: accuracy, references, the figures of blocks, the verdict."""

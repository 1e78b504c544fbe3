"""Makes a partition ready to run: by the recording of an earlier start, or by choosing and packing anew."""

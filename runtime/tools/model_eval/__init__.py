"""`farm model eval`: the accuracy of models on labelled data, by delegates and variants."""

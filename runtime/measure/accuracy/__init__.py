"""Accuracy on labelled data: samples, answers, scores and the differences between two settings."""

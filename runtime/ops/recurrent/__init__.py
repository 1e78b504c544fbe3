"""State over time: LSTM, RNN and SVDF in all their forms."""

"""Measures or predicts the seconds of an iteration before or without training: timed, rehearsed, simulated, planned."""

"""One training step, the loop around it, and the sweep around that."""

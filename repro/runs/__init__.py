"""What a run leaves behind: its folder, checkpoints, lock, status, provenance and progress."""

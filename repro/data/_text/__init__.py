"""What data sets of text share."""

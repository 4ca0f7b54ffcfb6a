"""Holds what image data sets share: augmentation, images in memory or in files, packed files, downloads."""

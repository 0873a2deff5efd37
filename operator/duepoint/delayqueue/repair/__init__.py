"""Whether the index agrees with itself, and how it is mended."""

"""The watch of our objects: through kopf, or through our own API client."""

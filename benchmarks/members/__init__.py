"""Members of sets at full size: loading them, removing their set beside firings."""

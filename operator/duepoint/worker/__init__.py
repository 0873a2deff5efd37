"""The worker: claims due points, fires them at their targets, settles their outcomes."""

"""Queue -> target -> run: claims due points, fires them, settles them."""

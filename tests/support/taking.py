"""A helper that takes an owner's places until its quota is reached."""

from __future__ import annotations


def take_all(given_out, owner, most=10_000):
    for taken in range(most):
        if not given_out.has_room(owner):
            return taken
        given_out.take(owner)
    return most

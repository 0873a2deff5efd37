"""Takes places until an owner may have no more."""

from __future__ import annotations


def take_all(given_out, owner, most=10_000):
    for taken in range(most):
        if not given_out.has_room(owner):
            return taken
        given_out.take(owner)
    return most

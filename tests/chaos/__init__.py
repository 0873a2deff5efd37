"""Chaos tests on real processes: a seeded plan of faults, a recorder, a checker of the history.

``make chaos`` runs them (``tests.chaos.__main__``). Operators, workers and servers are processes. A
design note, how faults are looked for, says what is recorded and how it is judged. ``history`` has
the values, ``checker`` the verdict; neither imports anything of the product.
"""

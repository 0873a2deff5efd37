"""A nemesis on real processes: faults by a seeded plan, a recorder, and a checker of the history.

``make chaos`` runs it (``tests.chaos.__main__``). Operators, workers and servers are processes; a
design note, how faults are looked for, says what is recorded and how it is judged. ``history`` has
the values, ``checker`` the verdict; both import nothing of the product.
"""

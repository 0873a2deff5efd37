"""A whole installation in one process: the product's services, a real Valkey, a virtual clock.

``loop`` runs the event loops of all simulated processes by one seeded order and a virtual clock,
``servers`` and ``tests.support.virtualvalkey`` give each process the real Lua on a real server,
``cluster`` plays the API server with its Job controller, ``receiver`` the servers that webhooks go
to, ``faults`` says what may happen to each message and process, ``history`` runs one whole story,
and ``oracle`` judges it by what the documentation promises. How to repeat a seed:
docs/reference/results.md.
"""

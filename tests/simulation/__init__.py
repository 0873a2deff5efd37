"""A whole installation in one process: the product's services, a real Valkey, a virtual clock.

``loop`` runs the event loops of all simulated processes in one seeded order on a virtual clock.
``servers`` and ``tests.support.virtualvalkey`` give each process the real Lua on a real server.
``cluster`` plays the API server with its Job controller, ``receiver`` the webhook receivers.
``faults`` lists what can happen to a message or a process, ``history`` runs one whole story, and
``oracle`` judges it by what the documentation promises. How to repeat a seed:
docs/reference/results.md.
"""

"""Webhooks: one slot, one HTTP request.

``target`` makes a delivery in steps. ``admission`` decides whether to send now, ``credentials``
resolves the webhook's Secrets, ``request`` composes what is sent, ``signing`` signs it, and
``response`` turns the answer into an outcome.
"""

"""One slot, one HTTP request.

``target`` makes a delivery in steps: ``admission`` (with ``circuitbreaker``) says whether it may be
made now, ``preparation`` has what the deliveries of a webhook share, ``credentials`` what of it is
secret, ``request`` what is sent and ``response`` what follows from the answer; ``signing`` signs.
"""

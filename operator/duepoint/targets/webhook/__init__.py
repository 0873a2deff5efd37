"""One slot, one HTTP request.

``target`` makes a delivery in steps: ``admission`` says whether it may be made now, ``credentials``
has what of a webhook is secret, ``request`` what its deliveries share and what is sent, and
``response`` what follows from the answer; ``signing`` signs.
"""

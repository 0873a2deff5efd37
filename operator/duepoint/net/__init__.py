"""Networking: an HTTP/1.1 client, a guarded dialler, and the server of our API.

``addresses`` <- ``egressrules`` <- ``dialling`` open connections, with ``lookups`` of names and of
our ``ownservers``; ``httpclient`` sends requests over them. ``httpserver`` serves, with the values
of ``requests``.
Nothing here knows what a webhook or a Job is.
"""

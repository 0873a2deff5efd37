"""Networking: an HTTP/1.1 client, a guarded dialler, and the server of our API.

``addresses`` <- ``egressrules`` <- ``resolving`` <- ``dialling`` open connections; ``httpclient``
sends requests over them. ``httpserver`` serves. Nothing here knows what a webhook or a Job is.
"""

"""What Schedules refer to by name: Secrets, ConfigMaps and tokens, and where these may be sent.

``references`` reads single keys and asks the owner's consent; ``servers`` reads connections to
other servers and dials them, ``tlscontexts`` makes contexts of certificates.
"""

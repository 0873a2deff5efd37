"""Access to the objects that Schedules name: Secrets, ConfigMaps and tokens, and owners' consent.

``references`` reads single keys and checks that the owner allows the receiver. ``servers`` reads
connections to other servers and dials them. ``tlscontexts`` makes TLS contexts from certificates.
"""

"""What Schedules refer to by name: Secrets, ConfigMaps and tokens, and where these may be sent.

``references`` reads through ``secretcache`` and asks ``consent``; ``connectionsecrets`` makes a
connection of a Secret, ``tlscontexts`` a context of its certificates.
"""

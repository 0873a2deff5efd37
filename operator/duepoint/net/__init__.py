"""What Duepoint sends by itself: one HTTP/1.1 client and one guarded dialler.

``addresses`` <- ``egressrules`` <- ``dialling`` (with ``lookups`` and ``ownservers``) open
connections; ``http1`` speaks over one; ``connections`` keeps them. Nothing here knows what a
webhook or a Job is.
"""

"""The web dashboard: its files, and the operations that its pages call.

Read downwards::

    files       the built files, their headers and tags
    objects | queueviews     the operations
    rows        objects of the API server -> what the pages show

Callers are authenticated as everywhere in the API. Then operations call the API server with the
caller's own token, so that it decides what they may see and do, and its audit log names them. For
what only Redis knows, a SubjectAccessReview decides.
"""

"""The web dashboard: its files, and the operations on Schedules that its pages call.

Read downwards::

    dashboard   the parts put together: a path -> a file, or an operation and its answer
    files       the built files, their headers and tags
    objects | queueviews | forecasts     the operations
    asking      a caller, and the API server asked with the caller's own token
    rows        objects of the API server -> what the pages show

Callers are authenticated as everywhere in the API. Then the API server is asked with the
caller's own token, so that it decides what they may see and do, and its audit log names them. What
only Redis knows is asked for after a SubjectAccessReview.
"""

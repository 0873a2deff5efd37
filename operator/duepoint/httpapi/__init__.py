"""``duepoint api``: members of ScheduleSets over HTTP. Stateless; any number of processes.

A request passes, in this order::

    net.httpserver  bounds on bytes, headers, time -> HttpRequest
    application     route, method, content type; answers every error as a problem
    access          authenticates (TokenReview) and authorises (SubjectAccessReview), cached
    ownsets         the set's record, its state and limits, and its rate limit over all processes
    idempotency     carries a request with a key out once
    members | listing | bulk     the operation itself, over delayqueue.members

``problems`` has every error code, ``operations`` the routes and their OpenAPI descriptions.
"""

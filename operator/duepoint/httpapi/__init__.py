"""``duepoint api``: members of ScheduleSets over HTTP. Stateless; any number of processes.

A request passes, in this order::

    net.httpserver  bounds on bytes, headers, time -> Request
    application     route, method, what is accepted; answers every error as a problem
    access          who asks (TokenReview), and whether they may (SubjectAccessReview), cached
    ownsets         the set's record, its state and limits, and changes a second over all processes
    idempotency     a request with a key is carried out once, and as safely as it asks
    singles | listing | bulk     the operation itself, over delayqueue.members

``problems`` has every code, ``operations`` the routes with what the OpenAPI document says of them.
"""

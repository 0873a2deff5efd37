"""The objects that users write and read, as Structs whose fields carry their limits and meaning.

This is the only source for the CRDs and the schemas for editors (tools/jobschema), the checks of
``duepoint validate``, the reader of specs and its messages, the OpenAPI document and the client's
types. A new field is a line here, and a line where the spec is read (``duepoint.schedules``).
"""

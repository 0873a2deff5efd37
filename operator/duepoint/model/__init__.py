"""What users write and read, each fact once: Structs whose fields carry their limits and meaning.

From them come the CRDs and the schemas for editors (tools/jobschema), what ``duepoint validate``
checks, the reader of specs and its messages, the OpenAPI document, and the client's types. A new
field is a line here, and what it means a line where the spec is read (``duepoint.schedules``).
"""

"""Traces of slots: spans as values, and what sends them to an OpenTelemetry collector."""

"""Traces of slots: spans as values, and an exporter to an OpenTelemetry collector."""

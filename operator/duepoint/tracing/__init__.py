"""Traces of slots: identities of spans, a bounded queue of ended ones, OpenTelemetry's exporter."""

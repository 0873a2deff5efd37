"""Kafka: one slot, one record. ``target`` reads the Secret and fires, ``producers`` sends."""

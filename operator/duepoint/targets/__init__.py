"""The targets of firings: Jobs, webhooks, streams and Kafka topics."""

"""One slot, one record.

``target`` fires, ``brokersettings`` reads the Secret, ``producers`` sends.
"""

"""A cron expression in a time zone, compiled from its parsed fields.

The work is done elsewhere: syntax.py reads the text, pattern.py knows the local times, dst.py the
zone and zoned.py joins the two. This is where they are put together, and what keeps the fields for
whoever wants to know what the expression says.
"""

from __future__ import annotations

from duepoint.expressions import dst, pattern, syntax, timezones, wording, zoned


class Cron(zoned.Zoned):
    """The slots of one cron text.

    Attributes:
        pattern: its local times.
        zone_name: the zone in which they are read, as ``timezones.located`` takes it.
    """

    __slots__ = ("_fields", "pattern", "zone_name")

    def __init__(
        self, fields: syntax.CronFields, *, zone_name: str, gap: dst.Gap, overlap: dst.Overlap
    ) -> None:
        self.pattern = pattern.Pattern(
            fields.day_rule, hours=fields.hours, minutes=fields.minutes, seconds=fields.seconds
        )
        super().__init__(
            self.pattern,
            dst.stretches(zone_name, sweeping=fields.sweeping, gap=gap, overlap=overlap),
            timezones.located(zone_name).starts,
        )
        self._fields = fields
        self.zone_name = zone_name

    @property
    def lists_years(self) -> bool:
        """Whether the text restricts the years, so that it may be over one day."""
        return self._fields.day_rule.years is not None

    def describe(self) -> str:
        return f"{wording.describe(self._fields)}, {timezones.located(self.zone_name).name}"

// Times and lengths of time as texts.

const formats = new Map();

function formatOf(zone) {
  if (!formats.has(zone)) {
    const options = {
      year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit",
      second: "2-digit", hourCycle: "h23", weekday: "short", timeZoneName: "short",
    };
    let made;
    try {
      made = new Intl.DateTimeFormat("en-GB", { ...options, timeZone: zone });
    } catch {
      made = new Intl.DateTimeFormat("en-GB", { ...options, timeZone: "UTC" }); // unknown here
    }
    formats.set(zone, made);
  }
  return formats.get(zone);
}

// "Mon 2026-03-02 07:30:00 CET"
export function when(text, zone = "UTC") {
  if (!text) return "";
  const parts = {};
  for (const { type, value } of formatOf(zone).formatToParts(new Date(text))) parts[type] = value;
  const { weekday, year, month, day, hour, minute, second, timeZoneName } = parts;
  return `${weekday} ${year}-${month}-${day} ${hour}:${minute}:${second} ${timeZoneName}`;
}

// "3 min", of seconds.
export function span(seconds) {
  const size = Math.abs(seconds);
  if (size < 1) return `${Math.round(size * 1000)} ms`;
  if (size < 100) return `${size < 10 ? size.toFixed(1) : Math.round(size)} s`;
  if (size < 6_000) return `${Math.round(size / 60)} min`;
  if (size < 172_800) return `${Math.round(size / 3_600)} h`;
  return `${Math.round(size / 86_400)} d`;
}

// "in 3 min", "3 min ago"
export function distance(text, now = Date.now()) {
  if (!text) return "";
  const seconds = (Date.parse(text) - now) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `in ${span(seconds)}` : `${span(seconds)} ago`;
}

export function seconds(from, to) {
  return from && to ? Math.max(0, (Date.parse(to) - Date.parse(from)) / 1000) : null;
}

export function number(value) {
  return value === null || value === undefined ? "" : value.toLocaleString("en-GB");
}

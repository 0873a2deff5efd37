"""The deliberate bugs: each replaces one text of one file, and names the tests that must fail.

A mutant stands for a mistake that could be made, in the code that decides whether a slot is
early, lost or doubled, whether a tenant reaches another one, or whether a status is true.
``before`` occurs exactly once in its file; a unit test holds that, so who edits such a line moves
its mutant.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Tests by what they judge; a mutant is tried on them in their order, until one fails.
SUITES = {
    "slots": ("tests/unit/schedules", "tests/property/schedules"),
    "expressions": ("tests/unit/expressions", "tests/property/expressions"),
    "runs": (
        "tests/unit/runs",
        "tests/property/runs",
        "tests/unit/controller",
        "tests/property/controller",
    ),
    "worker": ("tests/unit/worker", "tests/property/worker"),
    "scenarios": ("tests/scenarios",),
    "queue": (
        "tests/conformance/test_delayqueue.py",
        "tests/conformance/test_upsert.py",
        "tests/conformance/test_delivering.py",
        "tests/conformance/test_run_counts.py",
        "tests/conformance/test_delayqueue_faults.py",
        "tests/conformance/test_delayqueue_histories.py",
    ),
    "admission": ("tests/conformance/test_admission.py",),
    "letters": ("tests/conformance/test_dead_letter_quotas.py",),
    "circuits": ("tests/conformance/test_circuits.py",),
    "fallback": ("tests/conformance/test_falling_back.py",),
    "scripts": ("tests/lua",),
    "election": ("tests/unit/election", "tests/property/election"),
    "egress": ("tests/unit/net", "tests/unit/targets"),
    "jobs": ("tests/unit/kube", "tests/property/kube", "tests/conformance/test_kube.py"),
    "shares": (
        "tests/unit/test_shares.py",
        "tests/property/test_shares.py",
        "tests/property/test_share_histories.py",
    ),
    "clock": ("tests/unit/test_agreedclock.py", "tests/unit/test_clock.py"),
    "members": ("tests/conformance/test_members.py", "tests/conformance/test_set_removal.py"),
    "firing members": (
        "tests/integration/worker/test_members.py",
        "tests/integration/delayqueue/test_member_maintenance.py",
    ),
    "sets": ("tests/unit/controller/schedulesets", "tests/unit/runs/test_setruns.py"),
    "http api": ("tests/integration/httpapi/test_members.py",),
    "simulated": ("tests/simulation/test_events.py",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One deliberate bug.

    Attributes:
        name: what goes wrong, in a few words; unique.
        area: the part of the product, for the table.
        path: the file, below ``operator/duepoint``.
        before, after: the text that is replaced, and what it becomes.
        suites: keys of ``SUITES``.
    """

    name: str
    area: str
    path: str
    before: str
    after: str
    suites: tuple[str, ...]


def _mutant(area: str, path: str, name: str, before: str, after: str, *suites: str) -> Mutant:
    return Mutant(name=name, area=area, path=path, before=before, after=after, suites=suites)


_CLAIM = "delayqueue/scripts/claim.lua"
_SETTLE = "delayqueue/scripts/settle.lua"

MUTANTS = (
    # -- claim -----------------------------------------------------------------------------------
    _mutant(
        "claim", _CLAIM, "a fast worker's clock makes points due",
        "local cap = math.min(now, args.cap)", "local cap = math.max(now, args.cap)",
        "scripts", "queue",
    ),
    _mutant(
        "claim", _CLAIM, "what a clock made that was ahead is waited for",
        "length and ends > now + length + TOLERANCE", "length and ends > now + 1000 * length",
        "queue",
    ),
    _mutant(
        "claim", _CLAIM, "a claim leaves its points due",
        "rescore(keys[lane], found, 2, CLAIMED + token)\n    refresh_head(lane, keys[lane])\n"
        "    for",
        "refresh_head(lane, keys[lane])\n    for",
        "scripts", "queue",
    ),
    _mutant(
        "claim", _CLAIM, "a lane takes the whole batch",
        "local part = math.ceil(left / (#groups - i + 1))", "local part = left",
        "scripts", "queue",
    ),
    _mutant(
        "claim", _CLAIM, "a point that killed its owner is never alone",
        "local take = math.ceil(args.batch / 8 ^ attempts)", "local take = args.batch",
        "scripts", "queue",
    ),
    _mutant(
        "claim", _CLAIM, "an ended claim that lost its record is kept",
        "if seen == held or with_due == 0 then\n    drop_claim(expired)",
        "if seen == held and with_due > 0 then\n    drop_claim(expired)",
        "scripts", "queue",
    ),
    _mutant(
        "claim", _CLAIM, "what is reclaimed counts as claimed first just now",
        "return own(found_by_lane, attempts + (counted[4] and 0 or 1), suspects, first)",
        "return own(found_by_lane, attempts + (counted[4] and 0 or 1), suspects, cap)",
        "scripts", "queue", "scenarios",
    ),
    _mutant(
        "claim", _CLAIM, "a claim that was given back counts as a lost owner",
        "attempts + (counted[4] and 0 or 1)", "attempts + 1",
        "scripts", "queue",
    ),
    _mutant(
        "claim", "delayqueue/scripts/includes/rescoring.lua", "two claims share an expiry",
        "while redis.call('ZCOUNT', CLAIMS, token, token) > 0 do", "while false do",
        "scripts", "queue",
    ),
    _mutant(
        "claim", "delayqueue/scripts/includes/heads.lua", "a claimed point counts as the next due",
        "if first[1] and tonumber(first[2]) < CLAIMED and is_open(lane) then",
        "if first[1] and is_open(lane) then",
        "scripts", "queue",
    ),
    # -- settle ----------------------------------------------------------------------------------
    _mutant(
        "settle", _SETTLE, "a settlement sent twice is carried out twice",
        "if state[1] and args.number <= tonumber(state[1]) then", "if false then",
        "queue", "scripts",
    ),
    _mutant(
        "settle", _SETTLE, "a former owner settles what another worker holds",
        "if score and tonumber(score) == band and not held[member] then",
        "if score and not held[member] then",
        "queue",
    ),
    _mutant(
        "settle", _SETTLE, "a retry is stored without its record",
        "redis.call('ZADD', OCC, 0, ARGV[i])\n    redis.call('HSET', OCCREC, ARGV[i], ARGV[i + 1])",
        "redis.call('ZADD', OCC, 0, ARGV[i])",
        "queue",
    ),
    _mutant(
        "settle", _SETTLE, "finished occurrences leave their records",
        "if #occurrences > 0 then\n    forget_occurrences(occurrences)\n  end",
        "",
        "queue", "scripts",
    ),
    _mutant(
        "settle", _SETTLE, "the lane's head is not refreshed",
        "if args.every or is_named(lane) then\n    refresh_head(lane.lane, lane_key)\n  end",
        "",
        "queue", "scripts",
    ),
    _mutant(
        "settle", _SETTLE, "a settled claim stays to be reclaimed",
        "if remaining == 0 then\n  drop_claim(id)", "if remaining < 0 then\n  drop_claim(id)",
        "queue", "scripts",
    ),
    _mutant(
        "settle", _SETTLE, "a started run is not counted",
        "with_started(record, started_of(record) + 1)", "with_started(record, started_of(record))",
        "queue",
    ),
    _mutant(
        "settle", "delayqueue/scripts/plan.lua", "a chain is planned by a worker that lost it",
        "return score and tonumber(score) == band\nend\n\nlocal function add_slots",
        "return score ~= nil\nend\n\nlocal function add_slots",
        "queue", "scripts",
    ),
    _mutant(
        "settle", "delayqueue/scripts/release.lua", "what is given back loses its due",
        "change[#change + 1], change[#change + 2] = due, member",
        "change[#change + 1], change[#change + 2] = now + 60000000, member",
        "queue", "scripts",
    ),
    _mutant(
        "settle", "worker/tried.py", "a chain ends with its retry",
        "        finished = ()\n        chains = (points.chain(",
        "        finished = (point.member,)\n        chains = (points.chain(",
        "worker", "scenarios", "queue",
    ),
    _mutant(
        "settle", "worker/tried.py", "what never began uses up an attempt",
        "made = tried.attempt.number if wanted.counted else tried.attempt.number - 1\n    limits",
        "made = tried.attempt.number\n    limits",
        "worker", "scenarios",
    ),
    _mutant(
        "settle", "runs/outcome.py", "one attempt more than allowed",
        "if attempts_made >= limits.max_attempts:", "if attempts_made > limits.max_attempts:",
        "runs", "worker",
    ),
    _mutant(
        "settle", "runs/outcome.py", "a retry starts after its time is over",
        "return due_us if due_us < limits.give_up_us else None", "return due_us",
        "runs", "worker",
    ),
    # -- arming and edits ------------------------------------------------------------------------
    _mutant(
        "edits", "delayqueue/scripts/upsert.lua", "an older generation overwrites a newer one",
        "if wanted_generation <= generation and not is_replaced then",
        "if wanted_generation == generation and not is_replaced then",
        "queue",
    ),
    _mutant(
        "edits", "delayqueue/scripts/upsert.lua", "another schedule's definition is overwritten",
        "if uid ~= wanted_uid then", "if false then",
        "queue", "scripts",
    ),
    _mutant(
        "edits", "delayqueue/scripts/upsert.lua", "the former chain stays beside the new one",
        "if stored and not options.keep_chain then", "if false then",
        "queue",
    ),
    _mutant(
        "edits", "delayqueue/scripts/upsert.lua", "sleeping workers do not hear of an earlier due",
        "announce_head(before, now, first_id, first_due)\n", "",
        "queue", "scripts",
    ),
    _mutant(
        "edits", "delayqueue/scripts/remove.lua", "retries outlive their schedule",
        "drop_occurrences(LANE, members)\nend", "end",
        "queue",
    ),
    _mutant(
        "edits", "worker/planning.py", "slots of a former timing run",
        "return point.timing_version != known.timing_version or (", "return False and (",
        "worker", "queue", "scenarios",
    ),
    # -- fencing ---------------------------------------------------------------------------------
    _mutant(
        "fencing", "delayqueue/scripts/includes/fenced.lua", "an old leader writes",
        "if args.epoch < newest then", "if args.epoch < 0 then",
        "queue", "scripts",
    ),
    _mutant(
        "fencing", "election/elector.py", "a term has the epoch of the former one",
        "epoch = terms.Epoch(newest + 1)",
        "epoch = terms.Epoch(newest)",
        "election",
    ),
    _mutant(
        "fencing", "election/elector.py", "a Lease is taken before its holder's time is over",
        "return started - seen.since >= self._patience(current)",
        "return started - seen.since >= self._patience(current) / 3",
        "election",
    ),
    _mutant(
        "fencing", "election/elector.py", "a leader trusts in its Lease from the answer on",
        "holding.term.trust_until(began + self._timing.renew_deadline)",
        "holding.term.trust_until(self._clock.monotonic() + self._timing.renew_deadline)",
        "election",
    ),
    # -- policies --------------------------------------------------------------------------------
    _mutant(
        "policies", "schedules/policies.py", "the deadline is an hour longer",
        "return 0 if deadline_us is None else self.now_us - deadline_us",
        "return 0 if deadline_us is None else self.now_us - deadline_us - 3_600_000_000",
        "slots",
    ),
    _mutant(
        "policies", "schedules/policies.py", "Latest runs the two newest",
        'case "Latest":\n                return 1', 'case "Latest":\n                return 2',
        "slots",
    ),
    _mutant(
        "policies", "schedules/policies.py", "a slot at its very deadline is missed",
        "if due.due_us < max(self._deadline_edge_us, self._on_time_edge_us):",
        "if due.due_us <= max(self._deadline_edge_us, self._on_time_edge_us):",
        "slots",
    ),
    _mutant(
        "policies", "schedules/policies.py", "the slot after an outage is skipped",
        "following=slots.next_after(newest_us),\n        newest_us=newest_us,",
        "following=slots.next_after(slots.next_after(newest_us).slot_us),\n"
        "        newest_us=newest_us,",
        "slots", "worker",
    ),
    _mutant(
        "policies", "schedules/policies.py", "slots beyond catchUpLimit go in with the others",
        "return self.slots.count(self.first_us - 1, self.newest_us) <= self._most", "return True",
        "slots", "worker",
    ),
    _mutant(
        "policies", "worker/grouping.py", "a chain is due again at the slot that went in last",
        "_Step(one.slot_us, instants[number + 2], instants[number], rule, rows)",
        "_Step(one.slot_us, instants[number + 1], instants[number], rule, rows)",
        "worker",
    ),
    _mutant(
        "policies", "worker/planning.py", "maxRuns stops one run late",
        "if known.runs_left == 0:\n            self.made.close_chain(chain, None)",
        "if False:\n            self.made.close_chain(chain, None)",
        "worker", "queue", "scenarios",
    ),
    # -- watermark -------------------------------------------------------------------------------
    _mutant(
        "watermark", "runs/watermark.py", "an open slot counts as ended",
        "return slot_us <= self.through_us and not self.is_open(slot_us)",
        "return slot_us <= self.through_us",
        "runs",
    ),
    _mutant(
        "watermark", "runs/watermark.py", "the watermark passes open slots that are not listed",
        "return self._order[MOST_LISTED] - 1", "return None",
        "runs",
    ),
    _mutant(
        "watermark", "runs/watermark.py", "a missed range ends its newest slot only",
        "first_us = since_us if 0 < since_us < slot_us else slot_us", "first_us = slot_us",
        "runs",
    ),
    _mutant(
        "watermark", "runs/summary.py", "the watermark falls with an old event",
        "settled_us = max(summary.settled_us, may_reach_us)", "settled_us = may_reach_us",
        "runs",
    ),
    _mutant(
        "watermark", "runs/summary.py", "a report passes slots that are held",
        "ceiling_us = max(through_us, summary.settled_us)", "pass",
        "runs", "scenarios",
    ),
    _mutant(
        "watermark", "runs/watermark.py", "an old status replaces what was counted since",
        "if remembered is None or remembered.through_us < written.through_us:",
        "if remembered is None or remembered.through_us <= written.through_us:",
        "runs", "scenarios",
    ),
    _mutant(
        "watermark", "runs/floors.py", "a start that the last slots lack counts as counted",
        "return event.slot_us > self.history[-1].order[0]", "return False",
        "runs",
    ),
    # -- history ---------------------------------------------------------------------------------
    _mutant(
        "history", "controller/jobs/history.py", "a Job goes before its slot has ended",
        "and (job.is_wanted or has_ended(job.slot_us))", "",
        "runs",
    ),
    _mutant(
        "history", "controller/jobs/history.py", "a Job goes while the queue holds its slot",
        "job.slot_us not in held_us and (", "(",
        "runs",
    ),
    _mutant(
        "history", "controller/jobs/history.py", "a late request finds its Job gone",
        "if until_us > self._term.clock.now_us():", "if False:",
        "runs",
    ),
    _mutant(
        "history", "controller/jobs/history.py", "the newest Jobs go",
        "for job in group[: max(0, len(group) - limit)]", "for job in group[limit:]",
        "runs",
    ),
    # -- concurrency -----------------------------------------------------------------------------
    _mutant(
        "concurrency", "delayqueue/scripts/admit.lua", "Forbid lets a second run in",
        "if complete and room > older then", "if complete then",
        "admission",
    ),
    _mutant(
        "concurrency", "delayqueue/scripts/admit.lua", "a slot overtakes older ones that wait",
        "if complete and room > older then", "if complete and room > 0 then",
        "admission",
    ),
    _mutant(
        "concurrency", "delayqueue/scripts/admit.lua", "a slot that waits is not called up",
        "redis.call('ZADD', WAITING, digits(slot_of(queued)), queued)\nend", "end",
        "admission",
    ),
    _mutant(
        "concurrency", "delayqueue/scripts/admit.lua", "what was replaced begins once more",
        "if entered and state_of_run(entered) == REPLACED then", "if false then",
        "admission",
    ),
    # -- Jobs ------------------------------------------------------------------------------------
    _mutant(
        "jobs", "kube/jobcreation.py", "a foreign Job stands for the slot",
        "return NameConflict(trouble) if trouble else AlreadyOurs(existing.uid)",
        "return AlreadyOurs(existing.uid)",
        "jobs",
    ),
    _mutant(
        "jobs", "kube/jobcreation.py", "a Job of a namesake stands for the slot",
        '(found.name, found.uid) != (owner["name"], owner["uid"])', 'found.name != owner["name"]',
        "jobs",
    ),
    # -- egress ----------------------------------------------------------------------------------
    _mutant(
        "egress", "net/egressrules.py", "our own Redis is dialled",
        "if (aim.reached, aim.port) in own:", "if False:",
        "egress",
    ),
    _mutant(
        "egress", "net/egressrules.py", "a denied range yields to the mode",
        "if aim.within(policy.denied):",
        'if aim.within(policy.denied) and policy.mode != "open":',
        "egress",
    ),
    _mutant(
        "egress", "net/egressrules.py", "endpoints that a user wrote are dialled",
        "if route.vouched or aim.allowed_by(policy):", "if True:",
        "egress",
    ),
    _mutant(
        "egress", "net/addresses.py", "an IPv4 address within an IPv6 one is not seen",
        "if any(address in network for network in _WRAPPED):", "if False:",
        "egress",
    ),
    # -- reporter --------------------------------------------------------------------------------
    _mutant(
        "reporter", "controller/status/folding.py", "an old event opens a slot that has ended",
        "if slot_us in state.open or not has_ended:", "if True:",
        "runs", "scenarios",
    ),
    _mutant(
        "reporter", "controller/status/folding.py", "an event of the queue does not end its slot",
        "state.open.end(event.slot_us, since_us=event.since_us)\n", "pass\n",
        "runs", "scenarios",
    ),
    _mutant(
        "reporter", "controller/status/published.py",
        "the status of an older generation is accepted",
        "return ready.observed_generation == observed_generation(status) == generation",
        "return ready.observed_generation == observed_generation(status)",
        "runs",
    ),
    # -- receivers -------------------------------------------------------------------------------
    _mutant(
        "receivers", "worker/tried.py", "a dead letter takes its chain with it",
        'member = b"" if tried.attempt.is_chain else tried.attempt.point.member',
        "member = tried.attempt.point.member",
        "worker", "scenarios",
    ),
    # -- members of sets -------------------------------------------------------------------------
    _mutant(
        "members", "delayqueue/scripts/includes/heads.lua", "a suspended set fires",
        "return not entry or string.sub(entry, 1, 1) == 'o'", "return true",
        "members", "firing members",
    ),
    _mutant(
        "members", "delayqueue/scripts/includes/leaving.lua",
        "a one-off leaves while a slot of it is open",
        "local is_open = is_any_open and #occurrences_of(id, 1) > 0", "local is_open = false",
        "firing members", "scripts",
    ),
    _mutant(
        "members", "delayqueue/scripts/includes/leaving.lua",
        "a member that has ended is kept for no time",
        "return why == DEAD and math.max(kept, DEAD_KEPT) or kept", "return 0",
        "firing members", "scripts",
    ),
    _mutant(
        "members", "delayqueue/scripts/includes/leaving.lua", "a recurring member leaves as well",
        "if ends or (record and state_of(record) == COMPLETED) then", "if ends or record then",
        "firing members", "scripts",
    ),
    _mutant(
        "members", _SETTLE, "one-offs that have fired stay in the queue",
        "leave(KEYS[part[1]], ids, chains, part[4], KEYS[part[5]], part[6], now, left)",
        "local _ = { ids, chains }",
        "firing members", "scripts",
    ),
    _mutant(
        "members", "worker/planning.py", "a dead letter does not keep its member",
        "why = messages.Leaving.DEAD if made.dead else messages.Leaving.ENDED",
        "why = messages.Leaving.ENDED",
        "worker", "firing members",
    ),
    _mutant(
        "members", "delayqueue/scripts/putmembers.lua", "a write overtakes a condition",
        "if record == '' or expected == '' or string.sub(stored, 8, 11) ~= expected then",
        "if record == '' then",
        "members",
    ),
    _mutant(
        "members", "delayqueue/scripts/putmembers.lua", "a replaced member keeps its former chain",
        "if #gone > 0 then\n    redis.call('ZREM', LANE, unpack(gone))\n  end", "",
        "members",
    ),
    _mutant(
        "members", "delayqueue/scripts/putmembers.lua",
        "a repeated request makes a one-off again that has ended",
        "fingerprint and '!' .. fingerprint or nil", "nil",
        "firing members",
    ),
    _mutant(
        "members", "delayqueue/scripts/putmembers.lua",
        "a set that is being deleted takes members",
        "elseif string.sub(entry, 1, 1) == 'd' then\n    return { 'DELETING' }", "",
        "members",
    ),
    _mutant(
        "members", "delayqueue/scripts/putmembers.lua",
        "sleeping workers do not hear of a member that is due earlier",
        "announce_head(before, now, first_id, first_due)", "local _ = first_id",
        "members", "firing members", "scripts",
    ),
    _mutant(
        "members", "delayqueue/scripts/dropmembers.lua", "a removed member fires once more",
        "redis.call('ZREM', LANE, id .. version_of(stored))", "local _ = LANE",
        "members",
    ),
    _mutant(
        "members", "delayqueue/scripts/dropmembers.lua", "a removal takes a namesake's hash",
        "elseif has_other_name(stored, name) then\n    answer = ''", "",
        "members",
    ),
    _mutant(
        "members", "delayqueue/scripts/removeset.lua", "a deleted set takes another one's members",
        "return number == args.lane", "return true",
        "members",
    ),
    _mutant(
        "members", "delayqueue/scripts/setentry.lua", "a set that is being deleted opens again",
        "if stood and string.sub(stood, 1, 1) == 'd' then", "if false then",
        "members", "firing members",
    ),
    _mutant(
        "members", "delayqueue/members/writing.py", "ifAbsent replaces what stands there",
        "if isinstance(condition, values.IfAbsent) or (", "if False or (",
        "members", "http api",
    ),
    _mutant(
        "members", "delayqueue/members/writing.py", "another payload begins the slots anew",
        "due = _KEPT_CHAIN if keeps else _due_text(due_us)", "due = _due_text(due_us)",
        "members",
    ),
    _mutant(
        "members", "controller/schedulesets/settallies.py", "an end is counted twice",
        "if entry <= self.through.get(ended.shard, (-1, 0)):", "if False:",
        "sets",
    ),
    _mutant(
        "members", "controller/schedulesets/setcounts.py",
        "members that Redis lost are not noticed",
        "if before > counted.members and (went_back or counted.shards_without):", "if False:",
        "sets",
    ),
    _mutant(
        "members", "controller/schedulesets/setrows.py", "a row that cannot be read is removed",
        "not in found.rows and member.id not in found.kept", "not in found.rows",
        "sets",
    ),
    # -- repair ----------------------------------------------------------------------------------
    _mutant(
        "repair", "delayqueue/scripts/sweep.lua", "a point without a claim is never freed",
        "redis.call('ZADD', lane, 'XX', orphan[5], member)", "local _ = member",
        "queue", "scripts", "firing members",
    ),
    _mutant(
        "repair", "delayqueue/scripts/sweep.lua", "a chain that was lost is not armed again",
        "armed = armed + redis.call('ZADD', lane, 'NX', wanted[5], chain)", "armed = armed + 1",
        "queue", "scripts", "firing members",
    ),
    # -- the HTTP API ----------------------------------------------------------------------------
    _mutant(
        "http api", "httpapi/idempotency.py", "a repeated request is carried out twice",
        "if earlier.status:", "if False:",
        "http api",
    ),
    _mutant(
        "http api", "httpapi/idempotency.py", "a key of another request gets its answer",
        "if earlier.asked != digest:", "if False:",
        "http api",
    ),
    # -- a server that went back -----------------------------------------------------------------
    _mutant(
        "fallback", "delayqueue/scripts/includes/suspects.lua",
        "a server that went back is trusted",
        "if went_back then", "if false then",
        "fallback",
    ),
    _mutant(
        "fallback", "delayqueue/scripts/includes/suspects.lua",
        "a server's clock that is an hour ahead says what waits",
        "math.abs(now - confirmed) > MOST_APART", "confirmed - now > MOST_APART",
        "fallback",
    ),
    _mutant(
        "fallback", "delayqueue/scripts/includes/suspects.lua",
        "a worker that knows no agreed time says what waits",
        "if went_back and not confirmed and not insists then", "if false then",
        "fallback",
    ),
    _mutant(
        "fallback", "delayqueue/scripts/includes/suspects.lua",
        "retries fire before they are compared",
        "return due <= back or is_queued", "return is_queued",
        "fallback",
    ),
    # -- combinations, which the simulator alone has to notice -----------------------------------
    _mutant(
        "combinations", _CLAIM, "points are claimed by Redis's clock alone",
        "local cap = math.min(now, args.cap)", "local cap = now",
        "simulated",
    ),
    _mutant(
        "combinations", _CLAIM, "points are claimed by a worker's clock alone",
        "local cap = math.min(now, args.cap)", "local cap = args.cap",
        "simulated",
    ),
    _mutant(
        "combinations", "agreedclock.py", "an operator arms by its own wrong clock",
        "self._agree(own_us, queue.least_us)", "self._agree(own_us, None)",
        "simulated",
    ),
    _mutant(
        "combinations", "controller/jobs/history.py",
        "a Job goes while a late request may create it again",
        "until_us = at_us + outcome.LATE_US if may_come else 0", "until_us = 0",
        "simulated",
    ),
    _mutant(
        "combinations", "delayqueue/scripts/import.lua",
        "what moves to a new shard is not armed there",
        "  if due then\n    redis.call('ZADD', lane_key, due, id .. version_of(record))\n  end\n"
        "  schedules", "  schedules",
        "simulated",
    ),
    _mutant(
        "combinations", "delayqueue/scripts/upsert.lua",
        "an edit arms nothing in place of the former chain",
        "if due ~= '' then", "if due ~= '' and not stored then",
        "simulated",
    ),
    _mutant(
        "combinations", "controller/schedules/resync.py",
        "what was deleted while no operator led fires on",
        "for uid in absent:", "for uid in set():",
        "simulated",
    ),
    _mutant(
        "combinations", "kube/jobbuilder.py", "a run by hand has the name of its slot's own Job",
        "seconds = slot_us // 1_000_000\n    if not run_uid:",
        "seconds = slot_us // 1_000_000\n    if True:",
        "simulated",
    ),
    _mutant(
        "combinations", "controller/scheduleruns/occurrences.py",
        "slots of a run that got no answer are enqueued at once",
        "slot.standing = Standing.UNKNOWN", "slot.standing = Standing.WANTED",
        "simulated",
    ),
    _mutant(
        "combinations", _SETTLE, "what a receiver refused is forgotten",
        "redis.call('ZADD', OCC, 0, ARGV[i])\n    redis.call('HSET', OCCREC, ARGV[i], ARGV[i + 1])",
        "local _ = ARGV[i]",
        "simulated",
    ),
    _mutant(
        "combinations", "delayqueue/scripts/admit.lua",
        "Forbid looks for no Jobs after Redis forgot which run",
        "if args.is_job and args.listed ~= mark then", "if false then",
        "simulated",
    ),
    _mutant(
        "combinations", "controller/schedules/fingerprints.py",
        "another key leaves what is stored as it is",
        "_zone_data(zone).encode(), key.encode(), MEANING)",
        '_zone_data(zone).encode(), b"", MEANING)',
        "simulated",
    ),
    _mutant(
        "combinations", "delayqueue/scripts/includes/heads.lua",
        "members of a suspended set are claimed",
        "return not entry or string.sub(entry, 1, 1) == 'o'", "return true",
        "simulated",
    ),
    _mutant(
        "combinations", "delayqueue/scripts/dropmembers.lua", "a deleted member stays",
        "redis.call('HDEL', bucket, id)", "local _ = bucket",
        "simulated",
    ),
    _mutant(
        "combinations", "httpapi/idempotency.py",
        "a repeat behind the run of its member makes it run again",
        "if earlier.status:", "if False:",
        "simulated",
    ),
)  # fmt: skip

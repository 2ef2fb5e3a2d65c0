"""One serving engine: continuous batching over a paged cache, many decode steps advanced as one event.

A step begins at a boundary with whatever was admitted by then, and takes what the step table says. As long as
no prompt, finish or shortage of cache comes, decode steps differ only in their context, so that they are one
event; whoever comes in between cuts it at the end of the step that is under way. Time comes in, first tokens
and finishes go out; nothing here knows a clock.
"""

from bisect import insort
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from math import floor

import numpy as np

from twofold.twin.histogram import Histogram
from twofold.twin.serving.engine_memory import (
    DECODING,
    GONE,
    HANDED,
    PREFILLING,
    SWAPPED,
    WAITING,
    EngineMemory,
    Running,
)
from twofold.twin.serving.engine_types import (
    EngineSettings,
    EngineSpent,
    EngineWork,
    Finished,
    FirstToken,
    Output,
    Preemption,
    PrefillMode,
)
from twofold.twin.serving.step_table import StepTable, steps_to_gain

GAPS_COUNT_MAX, GAPS_WIDTH = 1024, 2


class Engine:
    """Mutable. Every method that takes `now_s` first lives through what happened until then.

    `next_at_s` is never later than the next output; when it has come, `advance` may find nothing yet.
    """

    __slots__ = (
        "_admitted_count", "_at_s", "_base_tokens", "_blocked", "_chunks", "_clock", "_counted_gaps",
        "_decoding", "_end_s", "_ending", "_extra_s", "_finishing", "_first_late_s", "_gained", "_gaps",
        "_gone_count", "_held_up_count", "_held_up_s", "_hit_count", "_hit_target_tokens", "_host_tokens",
        "_known", "_late_s", "_memory", "_mixed", "_out", "_outside", "_prefilling", "_run_steps",
        "_settings", "_slowness",
        "_static_tokens", "_steps", "_table", "_waiting", "busy_s", "decode_tokens", "held_token_s",
        "hit_tokens", "preempted_count", "prefill_tokens", "sequence_s", "step_count", "swapped_tokens",
        "used_token_s",
    )  # fmt: skip

    def __init__(self, table: StepTable, settings: EngineSettings, at_s: float = 0.0) -> None:
        self._table, self._settings = table, settings
        self._memory = EngineMemory(min(settings.kv_tokens, table.kv_tokens), settings)
        self._gained = settings.gained_tokens
        self._mixed = settings.prefill_mode is PrefillMode.MIXED and settings.static_wait_s is None
        self._slowness = 1.0
        self._late_s = settings.first_token_s
        self._first_late_s = 0.0  # what first tokens of the planned step are late by, besides
        self._ending = False  # somebody finishes in the planned step that prefills
        self._at_s = at_s  # the boundary up to which everything happened
        self._run_steps = 0  # of the run that begins there; 0: none is planned
        self._end_s = at_s  # of that run
        self._chunks: list[tuple[Running, int]] = []  # what its one step prefills; none: it decodes
        self._extra_s = 0.0  # that it takes besides, to swap
        self._blocked = False  # nobody who comes can join before something ends
        self._steps = 0  # that decoded; each lengthens every sequence by `_gained` tokens
        self._clock = 0  # whole tokens that a sequence would have gained in all of them
        self._decoding = 0
        self._base_tokens = 0  # of all that decode: held tokens = base + clock · decoding
        self._finishing: list[tuple[int, int, Running]] = []  # by clock; stale ones are skipped
        self._waiting: deque[Running] = deque()  # its head is never gone
        self._gone_count = 0  # in it
        self._prefilling: list[Running] = []
        self._outside: deque[Running] = deque()  # computed, not in the cache: swapped out or handed over
        self._host_tokens = 0
        self._static_tokens = 0  # that each of a static batch is generated after its prefill
        self._known: dict[int, Running] = {}
        self._out: deque[Output] = deque()
        self._admitted_count = 0
        self.busy_s = 0.0
        self.sequence_s = 0.0  # decoding sequences over time
        self.held_token_s = self.used_token_s = 0.0  # of the cache, over the time of steps that decode
        self._hit_count = self._hit_target_tokens = 0  # prompts that found a part of them cached
        self._counted_gaps = Histogram()
        self._gaps: list[float] = []  # not counted yet: seconds, and how often
        self._held_up_s, self._held_up_count = 0.0, 0
        self.prefill_tokens = self.decode_tokens = self.hit_tokens = self.swapped_tokens = 0
        self.preempted_count = self.step_count = 0

    # --- what the world calls ---

    def submit(self, work: EngineWork, now_s: float) -> None:
        """A request came. One that can never fit finishes at once, with no tokens."""
        running = self._known_from(work, now_s)
        if running is not None:
            self._waiting.append(running)

    def submit_prefilled(self, work: EngineWork, now_s: float) -> None:
        """A request came whose prompt and first token another engine computed: it only decodes here. Clients
        see that token when the cache has room for what was computed."""
        assert work.output_tokens > 1, work
        running = self._known_from(work, now_s)
        if running is not None:
            running.place = HANDED
            running.left_tokens -= 1
            self._outside.append(running)

    def remember(self, prompts: Sequence[tuple[int, ...]], block_tokens: int) -> None:
        """Hold prompts, by their hashes of blocks, as if they had been asked before the run."""
        self._memory.remember(prompts, block_tokens)

    def _known_from(self, work: EngineWork, now_s: float) -> Running | None:
        self._reach(now_s)
        if not self._memory.can_ever_hold(work):
            self._show(Finished(work.key, now_s + self._late_s, 0))
            return None
        if self._run_steps and not self._blocked:
            self._cut(now_s)
        running = self._known[work.key] = Running(work, now_s)
        return running

    def cancel(self, key: int, now_s: float) -> None:
        """Drop a request, wherever it is; nothing happens to one that is not here."""
        self._reach(now_s)
        running = self._known.pop(key, None)
        if running is None:
            return
        if self._run_steps:
            self._cut(now_s)
        self._leave(running)
        if running.place == WAITING:
            self._gone_count += 1
        running.place = GONE
        waiting = self._waiting
        while waiting and waiting[0].place == GONE:
            waiting.popleft()
            self._gone_count -= 1
        self._blocked = False
        if not self._run_steps:
            self._chunks = [chunk for chunk in self._chunks if chunk[0] is not running]

    def advance(self, now_s: float) -> list[Output]:
        """First tokens and finishes until `now_s` that were not told before, in order of time."""
        self._reach(now_s)
        out = self._out
        if not out or out[0][1] > now_s:
            return []
        if len(out) == 1:
            return [out.popleft()]
        found = []
        while out and out[0][1] <= now_s:
            found.append(out.popleft())
        return found

    def next_at_s(self) -> float | None:
        """When to call `advance` if nothing else comes; None: there is nothing to do."""
        if self._out:
            return self._out[0][1]
        if not self._run_steps:
            if not self._known:
                return None
            self._plan()
            if self._out:
                return self._out[0][1]
        due_s = self._end_s + self._late_s
        return due_s + self._first_late_s if self._chunks and not self._ending else due_s

    def set_speed(self, factor: float, now_s: float) -> None:
        """Work at `factor` times the table's speed from now on, the step under way included."""
        assert factor > 0.0, factor
        self._reach(now_s)
        if self._run_steps:
            self._cut(now_s)
        before, self._slowness = self._slowness, 1.0 / factor
        if self._run_steps:
            self._end_s = now_s + (self._end_s - now_s) * self._slowness / before

    def report(self) -> tuple[int, int, float]:
        """Running and waiting requests, and the used fraction of the cache, at the last boundary."""
        waiting = len(self._waiting) - self._gone_count + len(self._outside)
        return self._decoding + len(self._prefilling), waiting, self._memory.used_fraction

    def spent(self) -> EngineSpent:
        """What it came to so far."""
        tokens = self.prefill_tokens, self.decode_tokens, self.hit_tokens
        token_s = self.held_token_s, self.used_token_s
        return EngineSpent(self.busy_s, *tokens, self.preempted_count, self.saved_s, *token_s, self.gaps)

    @property
    def gaps(self) -> Histogram:
        """Seconds between steps that brought a sequence tokens."""
        self._settle_gaps()
        return self._counted_gaps

    @property
    def saved_s(self) -> float:
        """Engine seconds that hits saved: a mean prompt among those that hit, alone in a step, with and
        without what it found."""
        if not self._hit_count:
            return 0.0
        whole, hit = self._hit_target_tokens / self._hit_count, self.hit_tokens / self._hit_count
        table, rest = self._table, whole - hit
        with_s = table.mixed_s(rest, whole - 0.5 * rest, 0, 0.0)
        return self._hit_count * (table.mixed_s(whole, 0.5 * whole, 0, 0.0) - with_s)

    # --- time ---

    def _reach(self, now_s: float) -> None:
        """Finish every run that ends by `now_s`."""
        while self._run_steps or self._at_s < now_s:
            if not self._run_steps:
                if self._known:
                    self._plan()
                else:
                    self._at_s = now_s
                    return
            if self._end_s > now_s:
                return
            self._finish_run()

    def _cut(self, now_s: float) -> None:
        """Leave of the planned run only the step under way at `now_s`; none, where one would just begin."""
        at_s = self._at_s
        if now_s <= at_s:  # nothing has begun: whoever comes now may still join
            self._run_steps = 0
        elif not self._chunks and not self._decoding:  # a static batch waits to be full
            self._at_s, self._run_steps = now_s, 0
        elif self._run_steps > 1:
            table, count, gained = self._table, self._decoding, self._gained
            budget_s = (now_s - at_s) / self._slowness
            context = self._base_tokens / count + self._steps * gained
            done, seconds, step_s = table.cut(count, context, budget_s, self._run_steps - 1, gained)
            if done:
                seconds *= self._slowness
                self._decode(done, seconds)
                self._at_s = at_s = at_s + seconds
            self._run_steps = 1 if at_s < now_s else 0
            self._end_s = at_s + step_s * self._slowness

    def _plan(self) -> None:
        """Choose the run that begins here: one step with prompts, or decode steps up to an end."""
        memory, kv = self._memory, self._memory.kv
        most = kv.growing_count * memory.step_blocks
        if kv.held_count + most > kv.total_count and self._decoding and not self._chunks:
            self._make_room()
        if self._waiting or self._prefilling or self._outside:
            self._fill()
        else:
            self._blocked = self._decoding >= self._settings.max_batch
        count, chunks = self._decoding, self._chunks
        context = self._base_tokens / count + self._steps * self._gained if count else 0.0
        if chunks:
            beside = count if self._mixed else 0
            tokens, attended = 0, 0.0
            for running, part in chunks:
                tokens += part
                attended += part * (running.target_tokens - running.todo_tokens + 0.5 * part)
            seconds = self._table.mixed_s(tokens, attended / tokens, beside, context)
            self._run_steps = 1
            late_steps = self._settings.first_token_steps
            if late_steps:
                self._first_late_s = (
                    self._table.decode_s(count or 1, context, 1) * late_steps * self._slowness
                )
            # Whose last token may come before first tokens of this step: late ones are overtaken.
            due = self._finishing[0][0] - self._clock if beside else self._clock
            self._ending = late_steps > 1.0 or (beside > 0 and due < self._gained + 1.0)
        elif count:
            self._run_steps = steps = 1 if self._extra_s else self._steps_to_an_end()
            seconds = self._table.decode_s(count, context, steps, self._gained)
        else:
            self._run_steps = 1
            wait_s = self._settings.static_wait_s
            assert wait_s is not None, "requests wait, and none can run"
            self._end_s = self._waiting[0].submitted_s + wait_s
            return
        self._end_s = self._at_s + (seconds + self._extra_s) * self._slowness
        self._extra_s = 0.0

    def _steps_to_an_end(self) -> int:
        """Decode steps until the first sequence finishes or the cache runs short; at least one."""
        heap, clock, gained, kv = self._finishing, self._clock, self._gained, self._memory.kv
        while heap[0][2].admitted != heap[0][1] or heap[0][2].place != DECODING:
            heappop(heap)
        tokens = heap[0][0] - clock
        free = kv.total_count - kv.held_count
        # Drafts may make a little more than was due.
        short = free < kv.growing_count * (tokens // kv.block_tokens + 1 + self._memory.step_blocks)
        fit = kv.tokens_until_short(clock, free) if short else 0
        if gained == 1.0:
            steps = fit if short and fit < tokens else tokens
        else:
            steps = steps_to_gain(heap[0][0], gained) - self._steps
            if short:
                steps = min(steps, steps_to_gain(clock + fit + 1, gained) - 1 - self._steps)
        assert steps > 0, "no room for a step"
        longest = self._settings.longest_run_steps
        return steps if steps < longest else longest

    def _finish_run(self) -> None:
        """The planned run is over: its tokens are there, whoever is done leaves."""
        seconds, steps, chunks = self._end_s - self._at_s, self._run_steps, self._chunks
        self._run_steps, self._at_s = 0, self._end_s
        if chunks:
            self._chunks = []
            if self._mixed and self._decoding:
                self._decode(1, seconds)
            else:
                self.busy_s += seconds
                self.step_count += 1
                self._held_up_s += seconds if self._decoding else 0.0
                self._held_up_count = self._decoding
        elif self._decoding:
            self._decode(steps, seconds)
        if self._finishing and self._finishing[0][0] <= self._clock:
            self._finish_decoders()
        if chunks:
            self._finish_chunks(chunks)

    def _decode(self, step_count: int, seconds: float) -> None:
        """All decoding sequences gain the tokens of so many steps."""
        count, kv = self._decoding, self._memory.kv
        self._steps += step_count
        gain = step_count if self._gained == 1.0 else floor(self._steps * self._gained) - self._clock
        kv.held_count += kv.growth_count(self._clock, gain)
        if kv.idle_count and kv.held_count + kv.idle_count > kv.total_count:
            self._memory.evict()
        self._clock += gain
        step_s = seconds / step_count
        if self._held_up_s:  # whoever decoded before prompts had a step for themselves
            late = min(self._held_up_count, count)
            self._gaps += (step_s + self._held_up_s, late, step_s, step_count * count - late)
            self._held_up_s = 0.0
        else:
            self._gaps += (step_s, step_count * count)
        if len(self._gaps) >= GAPS_WIDTH * GAPS_COUNT_MAX:
            self._settle_gaps()
        begun = 0
        for running in self._prefilling:
            begun += running.target_tokens
        self.used_token_s += (self._base_tokens + (self._clock - 0.5 * gain) * count + begun) * seconds
        self.held_token_s += kv.held_count * kv.block_tokens * seconds
        self.decode_tokens += gain * count
        self.busy_s += seconds
        self.sequence_s += seconds * count
        self.step_count += step_count

    def _settle_gaps(self) -> None:
        # HOT: by the thousand; gap by gap the histogram was most of `_decode`: bench/twin_engine.py
        if self._gaps:
            values, counts = np.array(self._gaps).reshape(-1, GAPS_WIDTH).T
            self._gaps.clear()
            self._counted_gaps.add_counted(values, counts.astype(np.int64))

    def _finish_decoders(self) -> None:
        """Whoever has all its tokens leaves."""
        heap, clock, at_s = self._finishing, self._clock, self._at_s + self._late_s
        while heap and heap[0][0] <= clock:
            _, admitted, running = heappop(heap)
            if running.admitted == admitted and running.place == DECODING:
                work = running.work
                # What drafts, or a static batch's padding, made beyond the answer.
                self.decode_tokens -= clock - running.finish_clock
                self._decoding -= 1
                self._base_tokens -= running.base_tokens
                self._memory.release(running, clock, work.answered_blocks)
                running.place = GONE
                del self._known[work.key]
                self._show(Finished(work.key, max(at_s, running.first_s), work.output_tokens))

    def _finish_chunks(self, chunks: list[tuple[Running, int]]) -> None:
        """Prompts that are computed whole begin to decode; each has made its first token."""
        first_s = self._at_s + self._late_s + self._first_late_s
        for running, part in chunks:
            self.prefill_tokens += part
            if running.place != PREFILLING:  # it was cancelled meanwhile
                continue
            running.todo_tokens -= part
            if running.todo_tokens:
                continue
            self._prefilling.remove(running)
            self._memory.share(running)
            if running.first_s < 0.0:
                running.first_s = first_s
                self._show(FirstToken(running.work.key, first_s))
            running.left_tokens -= 1
            self._begin_decode(running)
        if self._finishing and self._finishing[0][0] <= self._clock:
            self._finish_decoders()

    def _begin_decode(self, running: Running) -> None:
        base, clock = running.target_tokens - self._clock, self._clock
        running.base_tokens, running.place = base, DECODING
        running.finish_clock = clock + running.left_tokens
        self._decoding += 1
        self._base_tokens += base
        if not running.reserved_blocks:
            self._memory.kv.join(base)
        static = self._settings.static_wait_s is not None
        due = clock + self._static_tokens if static else running.finish_clock
        heappush(self._finishing, (due, running.admitted, running))

    def _show(self, output: Output) -> None:
        """Keep what clients will see, in order of time."""
        out = self._out
        if out and out[-1][1] > output[1]:
            insort(out, output, key=lambda each: each[1])
        else:
            out.append(output)

    # --- who runs ---

    def _fill(self) -> None:
        """Give the step's budget to prompts: first those begun, then those outside, then who waits."""
        settings, chunks, prefilling, waiting = self._settings, self._chunks, self._prefilling, self._waiting
        budget = settings.chunk_tokens
        if self._mixed and self._decoding:
            # A batch as large as the budget would starve prompts for good.
            budget = max(budget - self._decoding, settings.block_tokens)
        for _, part in chunks:
            budget -= part
        if settings.static_wait_s is not None and not (self._decoding or prefilling):
            self._admit_static(settings.static_wait_s)
        if not chunks:
            for running in prefilling:
                budget = self._take(running, budget)
                if not budget:
                    break
        if self._outside:
            self._bring_in()
        if settings.static_wait_s is None and not self._outside:
            while waiting and budget and self._decoding + len(prefilling) < settings.max_batch:
                running = waiting[0]
                if not self._admit(running):
                    break
                budget = self._take(running, budget)
        full = self._decoding + len(prefilling) >= settings.max_batch
        self._blocked = full or bool(waiting or self._outside)

    def _take(self, running: Running, budget_tokens: int) -> int:
        """Plan as much of a prompt as the budget allows; what is left of that."""
        part = min(running.todo_tokens, budget_tokens)
        self._chunks.append((running, part))
        return budget_tokens - part

    def _admit(self, running: Running) -> bool:
        """Let the head of the queue in, if the cache has room for its prompt."""
        if not self._memory.admit(running, self._clock, self._decoding + len(self._prefilling)):
            return False
        self._waiting.popleft()
        while self._waiting and self._waiting[0].place == GONE:
            self._waiting.popleft()
            self._gone_count -= 1
        target, todo = running.target_tokens, running.todo_tokens
        if todo < target:
            self.hit_tokens += target - todo
            self._hit_target_tokens += target
            self._hit_count += 1
        running.place = PREFILLING
        self._admitted_count = running.admitted = self._admitted_count + 1
        self._prefilling.append(running)
        return True

    def _admit_static(self, wait_s: float) -> None:
        """Begin a static batch when it is full, or its first request has waited long enough."""
        waiting, most = self._waiting, self._settings.max_batch
        if not waiting:
            return
        full = len(waiting) - self._gone_count >= most
        if full or self._at_s >= waiting[0].submitted_s + wait_s:
            while waiting and len(self._prefilling) < most and self._admit(waiting[0]):
                pass
            self._static_tokens = max(running.left_tokens for running in self._prefilling) - 1

    # --- memory ---

    def _make_room(self) -> None:
        """Preempt the youngest until all others can make one more step."""
        kv = self._memory.kv
        while kv.held_count + kv.growing_count * self._memory.step_blocks > kv.total_count:
            gain = floor((self._steps + 1) * self._gained) - self._clock
            if kv.held_count + kv.growth_count(self._clock, gain) <= kv.total_count:
                return
            self._preempt_youngest()

    def _preempt_youngest(self) -> None:
        """The request admitted last leaves the cache; it comes back before whoever waits."""
        inside = (each for each in self._known.values() if each.place in (PREFILLING, DECODING))
        running = max(inside, key=lambda each: each.admitted)
        self.preempted_count += 1
        settings, decoding = self._settings, running.place == DECODING
        held_tokens = running.base_tokens + self._clock
        self._leave(running)
        running.place = WAITING
        if decoding:
            running.left_tokens = running.finish_clock - self._clock
            fits = self._host_tokens + held_tokens <= settings.host_kv_tokens
            if settings.preemption is Preemption.SWAP and fits:
                running.place, running.target_tokens = SWAPPED, held_tokens
                self._move_to_host(held_tokens)
                self._outside.appendleft(running)
                return
            # The newest token was sampled but is not in the cache: computing it makes the next one.
            running.target_tokens = held_tokens + 1
        self._waiting.appendleft(running)

    def _move_to_host(self, tokens: int) -> None:
        """Count what goes to the host (or, negative, comes back), and the time that it takes."""
        self._host_tokens += tokens
        self.swapped_tokens += abs(tokens)
        self._extra_s += abs(tokens) * self._settings.swap_token_s

    def _bring_in(self) -> None:
        """Let in who only has to decode, as far as there is room: oldest first of those swapped out."""
        while self._outside and self._decoding + len(self._prefilling) < self._settings.max_batch:
            running = self._outside[0]
            if not self._memory.admit(running, self._clock, self._decoding + len(self._prefilling)):
                return
            self._outside.popleft()
            if running.place == SWAPPED:
                self._move_to_host(-running.target_tokens)
            else:
                running.first_s = self._at_s + self._late_s
                self._show(FirstToken(running.work.key, running.first_s))
            self._admitted_count = running.admitted = self._admitted_count + 1
            self._begin_decode(running)

    def _leave(self, running: Running) -> None:
        """Take a request out of whatever it is in, and its cache from it."""
        if running.place == DECODING:
            self._decoding -= 1
            self._base_tokens -= running.base_tokens
        elif running.place == PREFILLING:
            self._prefilling.remove(running)
        elif running.place in (SWAPPED, HANDED):
            self._outside.remove(running)
            self._host_tokens -= running.target_tokens if running.place == SWAPPED else 0
        if running.place in (DECODING, PREFILLING):
            self._memory.release(running, self._clock)

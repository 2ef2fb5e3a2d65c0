"""Whatever a world does to an engine, in whatever order: nothing is lost, doubled, early or overfull."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.step_tables import linear
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_types import (
    EngineSettings,
    EngineWork,
    Finished,
    FirstToken,
    Preemption,
    PrefillMode,
)

TABLE = linear(0.008, 2e-5, 2e-5, 2e-9)


class EngineInAWorld(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_s, self.submitted = 0.0, 0
        self.inside: set[int] = set()
        self.begun: set[int] = set()

    @initialize(
        mode=st.sampled_from(PrefillMode),
        preemption=st.sampled_from(Preemption),
        kv_tokens=st.integers(400, 1500),
        drafts=st.sampled_from([0, 2]),
        wait_s=st.sampled_from([None, None, 0.1]),
        cached=st.sampled_from([0, 400]),
    )
    def begin(self, mode, preemption, kv_tokens, drafts, wait_s, cached) -> None:
        self.engine = Engine(
            TABLE,
            EngineSettings(
                max_batch=5,
                chunk_tokens=128,
                kv_tokens=kv_tokens,
                block_tokens=8,
                prefill_mode=mode,
                preemption=preemption,
                host_kv_tokens=300,
                draft_tokens=drafts,
                draft_accept_fraction=0.5,
                static_wait_s=wait_s,
                prefix_cache_tokens=cached,
                first_token_s=0.01,
                first_token_steps=0.3,
            ),
        )

    @rule(prompt=st.integers(1, 500), answer=st.integers(1, 120), shared=st.integers(0, 6))
    def submit(self, prompt: int, answer: int, shared: int) -> None:
        key, self.submitted = self.submitted, self.submitted + 1
        self.inside.add(key)
        self.engine.submit(EngineWork(key, prompt, answer, tuple(range(shared)), 32), self.now_s)

    @precondition(lambda self: self.submitted)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        key = data.draw(st.integers(0, self.submitted - 1))
        self.engine.cancel(key, self.now_s)
        self.inside.discard(key)

    @rule(for_s=st.floats(0.0, 1.0))
    def advance(self, for_s: float) -> None:
        before_s, self.now_s = self.now_s, self.now_s + for_s
        self.hear(self.engine.advance(self.now_s), before_s)

    @rule()
    def go_to_the_next_event(self) -> None:
        next_s = self.engine.next_at_s()
        assert next_s is not None or not self.inside
        if next_s is not None:
            before_s, self.now_s = self.now_s, max(self.now_s, next_s)
            self.hear(self.engine.advance(self.now_s), before_s)

    @rule(factor=st.floats(0.3, 3.0))
    def change_speed(self, factor: float) -> None:
        self.engine.set_speed(factor, self.now_s)

    def hear(self, outputs, after_s: float) -> None:
        times = [each.at_s for each in outputs]
        assert times == sorted(times) and all(after_s - 1e-9 <= at_s <= self.now_s for at_s in times)
        for each in outputs:
            if isinstance(each, FirstToken):
                assert each.key not in self.begun
                self.begun.add(each.key)
            elif isinstance(each, Finished) and each.key in self.inside:
                assert each.key in self.begun or each.output_tokens == 0
                self.inside.remove(each.key)

    @invariant()
    def counts_are_possible(self) -> None:
        if hasattr(self, "engine"):
            running, waiting, used = self.engine.report()
            assert 0 <= running <= 5 and 0.0 <= used <= 1.0
            assert 0 <= running + waiting <= len(self.inside)

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            before_s, self.now_s = self.now_s, self.now_s + 1e5
            self.hear(self.engine.advance(self.now_s), before_s)
            assert not self.inside
            assert self.engine.report() == (0, 0, 0.0)


TestEngineInAWorld = EngineInAWorld.TestCase
TestEngineInAWorld.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)

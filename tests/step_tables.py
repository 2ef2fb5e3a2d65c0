"""Step tables that a test can compute by hand."""

from twofold.twin.serving.step_table import ONES, StepTable


def linear(
    step_s: float = 0.0,
    prefill_token_s: float = 0.0,
    sequence_s: float = 0.0,
    held_token_s: float = 0.0,
    kv_tokens: int = 1 << 40,
) -> StepTable:
    """step + prefill tokens · a + decoding sequences · b + tokens that these hold · c, exactly."""
    grid = [
        [[step_s + p * prefill_token_s + d * sequence_s + d * k * held_token_s for k in ONES] for d in ONES]
        for p in ONES
    ]
    return StepTable(ONES, ONES, ONES, grid, kv_tokens=kv_tokens)

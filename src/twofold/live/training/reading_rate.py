"""How fast staged text is read into sequences: RUN SECONDS SEED TOKENS; prints JSON. A process of its own."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from twofold.live.training.data_order import TokenStream
from twofold.live.training.data_staging import read_pin, read_settings
from twofold.live.training.token_shard import Shard, open_shard

AT_ONCE = 8  # sequences between two looks at the clock


def main(words: Sequence[str]) -> None:
    """Read for so many seconds what is staged of a run; print bytes and tokens a second."""
    run, duration_s, seed, tokens = Path(words[0]), float(words[1]), int(words[2]), int(words[3])
    shards = staged_shards(run)
    stream = TokenStream(shards.__getitem__, len(shards), seed)
    began_s, count = time.perf_counter(), 0
    while (taken_s := time.perf_counter() - began_s) < duration_s or not count:
        for _ in range(AT_ONCE):
            stream.sequence(count, tokens)
            count += 1
    rate = count * tokens / taken_s
    said = {"tokens_per_s": rate, "bytes_per_s": rate * shards[0].tokens.itemsize}
    sys.stdout.write(json.dumps(said) + "\n")


def staged_shards(run: Path) -> list[Shard]:
    """The shards of a run that are staged."""
    settings = read_settings(run)
    pins = [read_pin(run, number) for number in range(len(settings.files))]
    return [open_shard(Path(settings.cache) / pin.key) for pin in pins if pin]


if __name__ == "__main__":
    main(sys.argv[1:])

"""What a service's CPU tiers took, as its log of requests has it."""

import json
from pathlib import Path

from twofold.app.loop_tiers import tiers_measured
from twofold.live.chained_file import ChainedFile
from twofold.live.gateway.request_log import requests_log
from twofold.live.line_file import written_files


def test_requests_are_counted_in_all_files_of_a_log_that_was_rotated(tmp_path: Path) -> None:
    path = requests_log(tmp_path)
    log = ChainedFile(path, limit_bytes=2000, file_count=40, key=None)
    for number in range(60):
        log.append(json.dumps({"at": f"2026-11-27T05:00:{number:02}", "tiers_s": {"lookup": number / 1e3}}))
        log.flush()
    log.stop()
    assert len(written_files(path)) > 3
    [measured] = tiers_measured(tmp_path, ["lookup"], "2026-11-27T05:00:10")
    assert (measured.count, measured.p50_s, measured.p95_s) == (50, 0.034, 0.057)

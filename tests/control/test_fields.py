"""The table of what stats() has: names that Prometheus takes."""

import re

from tfsched.control.fields import FIELDS, Kind, metric_name

METRICS = {key: metric_name(key) for key, field in FIELDS.items() if field.kind is not Kind.TEXT}


def test_names_follow_prometheus_rules():
    assert len(set(METRICS.values())) == len(METRICS)
    for key, name in METRICS.items():
        assert re.fullmatch(r"tfsched_[a-z][a-z0-9_]*", name), name
        assert name.endswith("_total") == (FIELDS[key].kind is Kind.COUNTER)
        unit = name.removesuffix("_total")
        assert not re.search(r"_(us|ms|bps|bits)$", unit), "base units only"
        if re.search(r"(^|_)bytes$", key):
            assert unit.endswith("_bytes")

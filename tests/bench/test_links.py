"""Bandwidths and the choice of a link."""

import pytest

from tfsched.bench import BenchError
from tfsched.bench.links import choose_link, format_bandwidth, parse_bandwidth


@pytest.mark.parametrize(
    ("text", "bandwidth_bps"),
    [
        ("1gbit", 1e9),
        ("400mbit", 4e8),
        ("100Mbit", 1e8),
        ("2.5gbit", 2.5e9),
        ("1e9", 1e9),
        (" 64 kbit ", 64e3),
        ("unlimited", None),
        ("0", None),
        (5e8, 5e8),
    ],
)
def test_parse_bandwidth(text, bandwidth_bps):
    assert parse_bandwidth(text) == bandwidth_bps


@pytest.mark.parametrize("text", ["", "fast", "-1gbit", "1gb", "nan", "inf", "1e999", "1 2", "5"])
def test_bad_bandwidth_is_one_sentence_with_the_value(text):
    with pytest.raises(BenchError) as caught:
        parse_bandwidth(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("bandwidth_bps", "text"),
    [(1e9, "1 Gbit/s"), (4e8, "400 Mbit/s"), (64e3, "64 kbit/s"), (None, "unlimited")],
)
def test_format_bandwidth(bandwidth_bps, text):
    assert format_bandwidth(bandwidth_bps) == text


def test_link_none_has_no_bandwidth_and_says_so():
    link = choose_link("none", 1e9)
    assert link.bandwidth_bps is None
    assert "loopback" in link.notes[0]


def test_unknown_link():
    with pytest.raises(BenchError, match="'vpn' is unknown"):
        choose_link("vpn", 1e9)


def test_emulated_needs_a_bandwidth():
    with pytest.raises(BenchError, match="needs a bandwidth"):
        choose_link("emulated", None)

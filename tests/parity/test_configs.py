"""What the tests of the room `model` expect of config.json files is what the installed transformers reads in them."""

import json

from config_cases import GOLDEN, cases


def test_the_expected_values_are_those_of_transformers():
    expected = {case["name"]: case for case in json.loads(GOLDEN.read_text())}
    for case in cases():
        assert expected.pop(case["name"]) == case
    assert not expected

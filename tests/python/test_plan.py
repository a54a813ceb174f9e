"""`nereus plan`: on a described cluster, without any device."""

import json
import math
import shutil
import xml.etree.ElementTree

import pytest

from program import ROOT, run, write_config


def plan(tmp_path, *options):
    return run("plan", write_config(tmp_path), *options)


def plan_json(tmp_path, *options):
    done = plan(tmp_path, "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_json_has_the_promised_keys_and_adds_up(tmp_path):
    report = plan_json(tmp_path, "--cluster", "h200x8", "--gpus", 16)
    assert {"plan", "step_s", "step_s_low", "step_s_high", "stages_s", "stages_interval_s", "classes_s", "memory",
            "peak_bytes", "idle", "runners_up", "layouts", "would_help"} <= set(report)
    assert report["step_s_low"] < report["step_s"] < report["step_s_high"]
    assert report["stages_s"].keys() >= {"gen", "update_actor", "update_critic"}
    for name, seconds in report["stages_s"].items():
        low, high = report["stages_interval_s"][name]
        assert low <= seconds <= high
        assert math.isclose(sum(report["classes_s"][name].values()), seconds, rel_tol=1e-9, abs_tol=1e-12), name
    used = {device for stage in report["plan"]["stages"] for unit in stage["units"] for device in unit}
    assert len(used) + len(report["idle"]) == 16 and not used & set(report["idle"])
    best = min(layout["step_s"] for layout in report["layouts"] if layout["step_s"])
    assert best == pytest.approx(report["step_s"], rel=1e-9)
    slower = [other["step_s"] for other in report["runners_up"] if "slower" in other["why"]]
    assert slower and min(slower) > report["step_s"]


@pytest.mark.parametrize("cluster", ["a100x4", "mi250x8"])
def test_every_named_cluster_has_a_plan(tmp_path, cluster):
    assert plan_json(tmp_path, "--cluster", cluster, "--gpus", 5)["step_s"] > 0


def test_longer_responses_take_longer(tmp_path):
    steps = [plan_json(tmp_path, "--cluster", "h200x8", "--gpus", 8, "--length", length)["step_s"]
             for length in (64, 128, 256)]
    assert steps[0] < steps[1] < steps[2]


def test_text_tells_what_matters(tmp_path):
    done = plan(tmp_path, "--cluster", "h200x8", "--gpus", 8)
    assert done.returncode == 0, done.stderr
    for words in ("actor/training", "9 of 10 within", "Predicted memory", "peak", "Runners-up", "slower by",
                  "What would help", "twice the devices (16)"):
        assert words in done.stdout, words


def test_heat_map_is_an_image_of_every_layout(tmp_path):
    image = tmp_path / "map.svg"
    layouts = plan_json(tmp_path, "--cluster", "h200x8", "--gpus", 8, "--heat-map", image)["layouts"]
    root = xml.etree.ElementTree.parse(image).getroot()
    cells = root.findall("{http://www.w3.org/2000/svg}rect")
    assert len(cells) == len(layouts) + 1  # and the background


def test_what_does_not_fit_says_what_would(tmp_path):
    done = plan(tmp_path, "cluster.memory_per_device=1MiB")
    assert done.returncode == 3, done.stdout + done.stderr
    for words in ("no plan fits", "closest is", "device 0:", "twice the memory per device"):
        assert words in done.stderr, words


def cluster_file(tmp_path, **changes):
    host = {"devices": 4, "full_speed_devices": 4}
    device = {"kind": "h200", "memory": 141 * 10**9, "flops": 989e12, "memory_bandwidth": 4.8e12}
    link = {"bandwidth": 100e9, "latency": 1e-5}
    cluster = {"hosts": [host], "device": device, "local": link, "in_host": link, "between_hosts": link} | changes
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(cluster))
    return file


def test_a_cluster_may_be_described_in_a_file(tmp_path):
    assert plan_json(tmp_path, "--cluster", cluster_file(tmp_path))["step_s"] > 0


@pytest.mark.parametrize("options, words", [
    (["--cluster", "h100"], ["unknown cluster", "h200x8"]),
    (["--cluster", "h200x8", "--gpus", "0"], ["--gpus"]),
    (["--length", "nan"], ["--length"]),
    (["--cluster", "nowhere.json"], ["nowhere.json"]),
])
def test_impossible_input_is_named(tmp_path, options, words):
    done = plan(tmp_path, *options)
    assert done.returncode in (1, 2), done.stdout + done.stderr
    for word in words:
        assert word in done.stdout + done.stderr, word


@pytest.mark.parametrize("changes", [
    {"hosts": []},
    {"hosts": [{"devices": 0, "full_speed_devices": 0}]},
    {"in_host": {"bandwidth": float("nan"), "latency": 1e-5}},
    {"device": {"kind": "h200", "memory": 0, "flops": 1e12, "memory_bandwidth": 1e12}},
])
def test_an_impossible_cluster_is_refused(tmp_path, changes):
    done = plan(tmp_path, "--cluster", cluster_file(tmp_path, **changes))
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("error: ")


def test_an_unknown_model_type_is_named_with_the_known_ones(tmp_path):
    model = shutil.copytree(ROOT / "assets/stories260K", tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"model_type": "gpt2"}))
    done = plan(tmp_path, f"actor_rollout_ref.model.path={model}")
    assert done.returncode == 2, done.stdout + done.stderr
    for words in ('model_type "gpt2" is not supported', "llama", "qwen3"):
        assert words in done.stderr, words


@pytest.mark.parametrize("setting, least", [("cluster.devices=-1", 0), ("cluster.hosts=0", 1)])
def test_a_cluster_without_devices_is_refused(tmp_path, setting, least):
    done = plan(tmp_path, setting)
    assert done.returncode == 2, done.stdout + done.stderr
    assert setting.replace("=", " = ") + f": must be {least} or more" in done.stderr
